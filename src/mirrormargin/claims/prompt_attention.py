"""C1, "Max-Margin Token Selection in Attention Mechanism": a prompt, alone or with a head."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import (
    all_at_least,
    all_at_most,
    all_equal,
    mean_near,
    share_at_least,
    smaller,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]

SOURCE = "C1, "
SHOWN = 199  # the last step of the published pictures


def examine_path(evidence: Evidence) -> Finding:
    chosen = evidence["p"] == 2
    D = evidence["divergence"][chosen, -1]
    return Finding(
        [
            share_at_least(
                "optimal tokens at the last radius", evidence["selects_optimal"][chosen, -1]
            ),
            all_at_most("1 - cos at the last radius", D, 1e-4),
        ],
        f"1 - cos ≤ {D.max():.1e} on {len(D)} paths",
    )


def examine_global(evidence: Evidence) -> Finding:
    constant = np.flatnonzero(evidence["rule"] == "constant")
    smallest = constant[np.argmin(evidence["lr"][constant])]
    D = evidence["flow_divergence"]
    left = D[:, -1] / np.nanmax(D, axis=1)
    optimal = evidence["optimal"][:, smallest]
    return Finding(
        [
            all_at_least("share of optimal tokens after constant steps", optimal, 1.0),
            all_at_most("1 - cos at the end of the flow", D[:, -1], 1e-2),
            all_at_most("the same, as a share of its largest value", left, 0.05),
        ],
        f"{optimal.mean():.0%} of the selected tokens are optimal; 1 - cos falls to"
        f" {D[:, -1].max():.1e} or less",
    )


def examine_local(evidence: Evidence) -> Finding:
    chosen = evidence["p"] == 2
    D = evidence["divergence"][chosen]
    left = D[:, -1] / D[:, 0]
    falling = np.diff(D[:, 2 * D.shape[1] // 3 :], axis=1) < 0
    num_local = int((evidence["kind"][chosen] == "local").sum())
    return Finding(
        [
            share_at_least("flows that keep their selection", evidence["stays"][chosen]),
            share_at_least("decades of the last third in which 1 - cos falls", falling),
            all_at_most("1 - cos at the end, as a share of that at the start", left, 0.25),
        ],
        f"1 - cos falls to {left.max():.0%} or less in {len(D)} flows, {num_local} of them around"
        " a direction that is not the global one",
    )


def examine_joint_path(evidence: Evidence) -> Finding:
    chosen = (evidence["p"] == 2) & (evidence["num_unsupported"] == 0)
    D, head = (evidence[name][chosen, -1] for name in ("divergence", "head_divergence"))
    return Finding(
        [
            all_at_most("1 - cos of W at the last radii", D, 1e-3),
            all_at_most("1 - cos of the head at the last radii", head, 1e-3),
        ],
        f"1 - cos: W {D.max():.1e}, head {head.max():.1e}",
    )


def examine_relaxed(evidence: Evidence) -> Finding:
    chosen = (evidence["p"] == 2) & (evidence["num_unsupported"] > 0)
    D, plain = evidence["divergence"][chosen, -1], evidence["plain_divergence"][chosen]
    return Finding(
        [
            all_at_most("1 - cos of W from the relaxed solution", D, 1e-3),
            all_at_least("1 - cos of W from the solution without relaxation", plain, 1e-2),
        ],
        f"1 - cos: relaxed {D.max():.1e}, without {plain.min():.1e}",
    )


def examine_nonlinear(evidence: Evidence) -> Finding:
    D, gaps = evidence["divergence"], evidence["log_loss_gap"]
    left = D[:, -1].mean() / D[:, 0].mean()
    return Finding(
        [
            all_at_most("f of a mixture over that of the best token", evidence["mixing_gain"], 1.0),
            all_at_most("change of the log loss from circle to circle", np.diff(gaps), 0.0),
            all_at_most("1 - cos at the last radius", D[:, -1], 5e-3),
            all_at_most("its mean, as a share of that at the first radius", left, 0.1),
        ],
        f"1 - cos ≤ {D[:, -1].max():.1e} at radius {evidence['radii'][-1]:.0f}",
        "Checked for a convex ReLU head and labels +1, by search over all prompts of the plane",
    )


def examine_single(evidence: Evidence) -> Finding:
    normalized = evidence["rule"] == "normalized"
    alike, local = (normalized & (evidence["problem"] == name) for name in ("alike", "local"))
    D, optimal = evidence["divergence"][:, -1], evidence["optimal"]
    at_local = int((optimal[local] == 0).sum())
    return Finding(
        [
            all_at_least(
                "third score 0.9: starts that end at the optimal token", optimal[alike], 1
            ),
            all_at_most("third score 0: least share of optimal tokens", optimal[local].min(), 0),
            all_at_least("third score 0: largest share of optimal tokens", optimal[local].max(), 1),
            share_at_least("selections that are locally optimal", evidence["locally_optimal"]),
            all_at_most("1 - cos to the own max-margin prompt", D[alike | local], 1e-3),
        ],
        f"third score 0.9: {int(optimal[alike].sum())} of {alike.sum()} starts end at the optimal"
        f" token; third score 0: {at_local} of {local.sum()} end at the local one",
    )


def examine_multi(evidence: Evidence) -> Finding:
    multi = evidence["problem"] == "multi"
    rows = {rule: multi & (evidence["rule"] == rule) for rule in ("normalized", "constant")}
    centre = evidence["start"] == 0  # the published curves are of this start
    norms, attention = (
        {rule: _find_shown(evidence, name, row & centre) for rule, row in rows.items()}
        for name in ("norm", "attention")
    )
    return Finding(
        [
            all_at_least("share of optimal tokens in the end", evidence["optimal"][multi], 1.0),
            all_at_most(
                "1 - cos after normalised steps",
                evidence["divergence"][rows["normalized"], -1],
                1e-3,
            ),
            mean_near("|prompt| after 200 normalised steps", norms["normalized"], 19.5, 0.5),
            mean_near("|prompt| after 200 steps of gradient descent", norms["constant"], 3.9, 0.5),
            mean_near("attention after 200 normalised steps", attention["normalized"], 1.0, 0.02),
            mean_near("attention after 200 steps", attention["constant"], 0.97, 0.02),
        ],
        f"|prompt| {norms['normalized'].mean():.1f} and {norms['constant'].mean():.2f}; attention"
        f" {attention['normalized'].mean():.3f} and {attention['constant'].mean():.3f}",
    )


def examine_joint(evidence: Evidence) -> Finding:
    relaxed = evidence["num_unsupported"] > 0
    steps, tight = evidence["steps"], ~relaxed
    attention = evidence["attention"][:, np.searchsorted(steps, 90)]
    probability = evidence["probability"][:, np.searchsorted(steps, 70)]
    D, head, plain = (evidence[f"{name}divergence"][:, -1] for name in ("", "head_", "plain_"))
    return Finding(
        [
            all_equal("problems with an unsupported sequence", relaxed, [False, True]),
            all_at_most("1 - cos of the prompt", D, 1e-3),
            all_at_most("1 - cos of the head", head, 1e-3),
            all_at_least("1 - cos from the solution without relaxation", plain[relaxed], 1e-2),
            mean_near("softmax probability at step 90", attention[tight], 1.0, 0.01),
            mean_near("logistic probability at step 70", probability[tight], 1.0, 0.01),
        ],
        f"probabilities {attention[tight].mean():.4f} and {probability[tight].mean():.4f}; second"
        f" problem: 1 - cos {D[relaxed].max():.1e} from the relaxed solution,"
        f" {plain[relaxed].min():.1e} from the other",
    )


def examine_losses(evidence: Evidence) -> Finding:
    loss, C, path = evidence["loss"], evidence["C"], evidence["path"]
    shown = path[:, np.searchsorted(evidence["steps"], SHOWN), 1]
    above, below = ((loss == name) & (C > 1) for name in ("correlation", "logistic"))
    off, ten = np.abs(path[:, -1, 1] - evidence["height"]), C == 10
    return Finding(
        [
            all_at_most("1 - cos to (1, 0) in the end", evidence["divergence"][:, -1], 1e-3),
            all_at_most("distance from the derived height", off, 1e-2),
            all_at_least("height of the paths of -m for C > 1", shown[above], 0.0),
            all_at_most("height of the paths of log(1 + e^-m) for C > 1", shown[below], 0.0),
            mean_near("height at C = 10, -m", shown[ten & above], 1.15, 0.1),
            mean_near("height at C = 10, log(1 + e^-m)", shown[ten & below], -3.15, 0.1),
        ],
        f"heights at C = 10: {shown[ten & above][0]:+.2f} and {shown[ten & below][0]:+.2f}",
        "The heights are where both sequences pull alike, log(C loss'(C) / loss'(1)) / 2. At C ="
        " 100 the logistic path leaves (1, -1) only after some hundred steps, beyond the picture",
    )


def examine_vision(evidence: Evidence) -> Finding:
    spread = evidence["spread"]
    return Finding(
        [
            smaller("fall of the spread of attention, by layer", spread[-1], spread[0]),
        ],
        f"spread of attention {spread[0].mean():.2f} before and {spread[-1].mean():.2f} after",
    )


def _find_shown(evidence: Evidence, name: str, rows: Any) -> Any:
    return evidence[name][rows, np.searchsorted(evidence["steps"], SHOWN)]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="C1.thm.path",
        title="The Euclidean regularisation path goes to the max-margin direction",
        statement="With a fixed head, the minimiser of the loss on a Euclidean ball tends in"
        " direction to the max-margin solution of the optimal tokens as the ball grows.",
        source=SOURCE + "theorem on the regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="paths",
        examine=examine_path,
        figures=("paths",),
    ),
    Claim(
        id="C1.thm.gd-global",
        title="Gradient descent is global if all tokens but the optimal ones score alike",
        statement="If the tokens of a sequence other than the optimal one have equal scores,"
        " gradient descent with a small constant rate goes from any start to the max-margin"
        " direction of the optimal tokens.",
        source=SOURCE + "theorem on global convergence of gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="steps",
        examine=examine_global,
        figures=("steps",),
    ),
    Claim(
        id="C1.thm.local",
        title="Gradient descent that starts near a locally optimal direction converges to it",
        statement="Inside a cone around a locally optimal direction, and with a norm that is large"
        " enough, gradient descent with a small rate converges in that direction.",
        source=SOURCE + "theorem on local convergence of gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="cones",
        examine=examine_local,
        figures=("cones",),
    ),
    Claim(
        id="C1.thm.joint-path",
        title="Trained together, attention and head both go to their max-margin solutions",
        statement="If all sequences support the decoder, the joint regularisation path of attention"
        " and head tends to the max-margin solution of each.",
        source=SOURCE + "theorem on the joint regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="joint-paths",
        examine=examine_joint_path,
        figures=("joint-paths",),
    ),
    Claim(
        id="C1.thm.relaxed",
        title="Sequences that do not support the decoder are asked for no lead",
        statement="If some sequences do not support the decoder, attention tends along the joint"
        " path to the relaxed solution, in which their constraints have the right-hand side 0.",
        source=SOURCE + "theorem on the joint regularisation path",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="joint-paths",
        examine=examine_relaxed,
        figures=("joint-paths",),
    ),
    Claim(
        id="C1.thm.nonlinear-head",
        title="The path goes to the max-margin direction under a nonlinear head too",
        statement="If the loss is least when each sequence attends to one token, and mixing tokens"
        " never helps, the regularisation path tends to the max-margin direction of these tokens.",
        source=SOURCE + "theorem on nonlinear heads",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        experiment="nonlinear-head",
        examine=examine_nonlinear,
    ),
    Claim(
        id="C1.fig.single",
        title="One sequence: which token a prompt ends at depends on the support token's score",
        statement="With a third score of 0.9 all six starts go to the optimal token; with a third"
        " score of 0 some of them go to the locally optimal one.",
        source=SOURCE + "figure of one sequence in the plane",
        provenance=Provenance.SEEN,
        published="0.9: all at the optimal token; 0: some at the local one",
        experiment="prompts",
        examine=examine_single,
        figures=("prompts",),
    ),
    Claim(
        id="C1.fig.multi",
        title="Three sequences: normalised steps grow a prompt five times as fast as plain ones",
        statement="On three sequences whose tokens but one score alike, all starts go to the"
        " max-margin direction, and normalised steps get there much faster.",
        source=SOURCE + "figures of three sequences in the plane",
        provenance=Provenance.SEEN,
        published="|prompt| 19.5 and 3.9, attention 1.00 and 0.97 after 200 steps",
        experiment="prompts",
        examine=examine_multi,
        figures=("prompts",),
    ),
    Claim(
        id="C1.fig.joint",
        title="A prompt and a head trained together reach both max-margin solutions",
        statement="From the published start attention and the label probability go to 1; the prompt"
        " goes to the max-margin direction, or to the relaxed one if a sequence does not support"
        " the decoder.",
        source=SOURCE + "figures of joint training",
        provenance=Provenance.SEEN,
        published="softmax probability about 1 by step 90, logistic one by step 70",
        experiment="joint-prompts",
        examine=examine_joint,
        figures=("joint-prompts",),
    ),
    Claim(
        id="C1.fig.losses",
        title="Losses bend the path of a prompt to different sides, and keep its direction",
        statement="Of two sequences that gain C and 1 from attending, -m favours the first and the"
        " logistic loss the second: paths run at different heights, along the same direction.",
        source=SOURCE + "figure comparing losses",
        provenance=Provenance.SEEN,
        published="heights at C = 10: +1.15 and -3.15",
        experiment="prompt-losses",
        examine=examine_losses,
        figures=("prompt-losses",),
    ),
    Claim(
        id="C1.fig.vit",
        title="The attention maps of a vision transformer become sparser in training",
        statement="In a ViT-base trained on CIFAR-10 from scratch attention concentrates on ever"
        " fewer tokens.",
        source=SOURCE + "figure of attention maps",
        provenance=Provenance.SEEN,
        published="sparser; no numbers",
        experiment="vision-attention",
        should_hold=False,
        examine=examine_vision,
    ),
)
