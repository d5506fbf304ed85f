"""The algorithms and theorems of paper A."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, mean_at_least, share_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]

EARLY = (20.0, 50.0)  # decades of steps that set the factor of a bound
VISIBLE = 12.0  # lead in logits up to which a step changes the loss by more than rounding
LATE = 100.0  # the last decades, in which it has to suffice


def examine_step(evidence: Evidence) -> Finding:
    excess = evidence["excess"]
    return Finding(
        [
            all_at_least(
                "excess of perturbed steps over the size of the change squared", excess, 0.0
            )
        ],
        f"no perturbed step is better; the least excess is {excess.min():.2g} size^2",
    )


def examine_gd(evidence: Evidence) -> Finding:
    steps, cosine = evidence["sgd_difference"], evidence["cosine_difference"]
    return Finding(
        [
            all_at_most("difference from torch.optim.SGD after 100 steps", steps, 1e-13),
            all_at_most("difference of D from 1 - cos", cosine, 1e-13),
        ],
        f"equal to {max(steps.max(), cosine.max()):.0e}",
    )


def examine_path(evidence: Evidence) -> Finding:
    D = evidence["divergence"][:, -1]
    return Finding(
        [
            share_at_least("points certified as local minimisers", evidence["is_certified"]),
            share_at_least("optimal tokens at the last radius", evidence["selects_optimal"][:, -1]),
            all_at_most("D at the last radius", D, 1e-4),
        ],
        f"D ≤ {D.max():.1e} on {len(D)} paths",
    )


def examine_local_path(evidence: Evidence) -> Finding:
    D = evidence["divergence"][:, -1]
    return Finding(
        [all_at_most("D at the last radius", D, 1e-4)], f"D ≤ {D.max():.1e} on {len(D)} paths"
    )


def examine_cone(evidence: Evidence) -> Finding:
    descends, norm = evidence["start_descends"], evidence["norm"]
    growth = norm[:, -1] / norm[:, 0]
    mu, radius = evidence["start_mu"], evidence["start_radius"]
    visible = radius <= VISIBLE
    return Finding(
        [
            all_at_least("share of W in the cone with a slope towards W_mm", descends, 1.0),
            all_at_most(
                "largest change of log L in a step", evidence["loss_rise"][visible], -1e-15
            ),
            all_at_least("growth of |W|_p along the flow", growth, 2.0),
        ],
        f"slope negative at {descends.min():.0%} of W in each of {len(descends)} cones",
        f"A token of a higher score close behind the support makes a cone narrow: the widths used"
        f" run from {mu.max():.0e} down to {mu.min():.0e}, the radii from {radius.min():.0f} to"
        f" {radius.max():.0f} times |W_mm|_p. Further out than {VISIBLE:g} the loss changes by less"
        f" than rounding: {int(visible.sum())} descents are looked at step by step",
    )


def examine_direction(evidence: Evidence) -> Finding:
    D = evidence["divergence"]
    left = D[:, -1] / D[:, 0]
    falling = np.diff(D[:, 2 * D.shape[1] // 3 :], axis=1) < 0
    num_local = int((evidence["kind"] == "local").sum())
    return Finding(
        [
            share_at_least("flows that keep their selection", evidence["stays"]),
            share_at_least("decades of the last third in which D falls", falling),
            all_at_most("D at the end, as a share of that at the start", left, 0.25),
        ],
        f"D falls to {left.max():.0%} or less in {len(D)} of {len(D)} flows, {num_local} of them"
        " around a local direction",
    )


def examine_local(evidence: Evidence) -> Finding:
    kinds = evidence["kind"][:, 1]  # safe arithmetic
    at_local = share_at_least(
        "runs that end at a selection other than the optimal", kinds == "local", 0.05
    )
    return Finding(
        [
            share_at_least(
                "runs that end at a locally optimal selection",
                np.isin(kinds, ["global", "local"]),
                0.9,
            ),
            at_local,
        ],
        ", ".join(
            f"p = {p:g}: {(kinds[:, j] == 'global').mean():.0%} global,"
            f" {(kinds[:, j] == 'local').mean():.0%} local"
            for j, p in enumerate(evidence["p"])
        ),
    )


def examine_rate(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import bound_holds, claimed_rate

    decades = float(evidence["decades"][0])
    holds, exponents = [], {}
    for p, log10_k, D in zip(
        evidence["p"], evidence["log10_k"], evidence["divergence"], strict=True
    ):
        _, rate = claimed_rate(float(p))
        used = log10_k >= 1
        log_k = np.log(10) * log10_k[used]
        check = bound_holds(log_k, D[used], rate, EARLY, (decades - LATE, decades))
        holds.append(check.holds)
        last = log10_k[used] >= decades - LATE
        slope = np.polyfit(np.log(log_k[last]), np.log(D[used][last]), 1)[0]
        exponents.setdefault(float(p), []).append(-slope)
    found = ", ".join(f"{np.mean(values):.2f} (p = {p:g})" for p, values in exponents.items())
    return Finding(
        [
            share_at_least("flows followed to the end", evidence["followed"]),
            share_at_least("flows within the bound of their early decades", holds),
        ],
        f"bound holds in {sum(holds)} of {len(holds)}; D ~ (log k)^-a, a = {found}",
    )


def examine_growth(evidence: Evidence) -> Finding:
    log_k = np.log(10) * evidence["log10_k"][:, -1]
    lead = evidence["norm"][:, -1] * evidence["margin"] / log_k
    return Finding(
        [
            all_at_least("|W|_p / (|W_mm|_p log k) at the end, least", lead, 0.8),
            all_at_most("the same, largest", lead, 1.2),
        ],
        f"|W|_p / (|W_mm|_p log k) from {lead.min():.3f} to {lead.max():.3f}",
    )


def examine_joint_path(evidence: Evidence) -> Finding:
    toy = evidence["problem"] == "toy"
    D, Dv = evidence["divergence"][toy, -1], evidence["head_divergence"][toy, -1]
    return Finding(
        [
            share_at_least("points certified as local minimisers", evidence["is_certified"][toy]),
            all_at_most("D of W at the last radius", D, 1e-4),
            all_at_most("D of v at the last radius", Dv, 1e-4),
        ],
        f"D of W ≤ {D.max():.1e}, of v ≤ {Dv.max():.1e}",
    )


def examine_relaxed(evidence: Evidence) -> Finding:
    relaxed = evidence["problem"] == "relaxed"
    D, plain = evidence["divergence"][relaxed, -1], evidence["plain_divergence"][relaxed]
    times = plain / np.maximum(D, np.finfo(float).eps)
    return Finding(
        [
            all_at_least("sequences without support", evidence["num_unsupported"][relaxed], 1),
            all_at_most("D of W from the relaxed solution", D, 1e-4),
            all_at_least("D from the plain over D from the relaxed solution", times, 100.0),
        ],
        f"D ≤ {D.max():.1e} from the relaxed, ≥ {plain.min():.1e} from the plain solution",
    )


def examine_normalized_growth(evidence: Evidence) -> Finding:
    p, norm = evidence["p"], evidence["norm"][:, 1, :, -1]
    ideal = (0.1 * evidence["steps"][:, -1]) ** (1 / (p - 1))
    share = norm / ideal
    return Finding(
        [
            *(
                mean_at_least(f"|W_k|_p / (lr k)^(1/(p-1)) at p = {one:g}", column, 0.75)
                for one, column in zip(p, share.T, strict=True)
            ),
            all_at_most("the same, largest", share, 1.05),
        ],
        "|W_k|_p / (lr k)^(1/(p-1)) = "
        + ", ".join(
            f"{value:.2f} (p = {one:g})" for one, value in zip(p, share.mean(axis=0), strict=True)
        ),
    )


SOURCE = "paper A, "

CLAIMS = (
    Claim(
        id="A.alg.step",
        title="A mirror step minimises the linearised loss plus the Bregman divergence",
        statement="Moving in dual coordinates, grad psi(W') = grad psi(W) - lr G, is the same as"
        " choosing W' to minimise lr <G, W'> + D_psi(W', W).",
        source=SOURCE + "algorithm lp-AttGD",
        provenance=Provenance.DERIVED,
        published="exact",
        experiment="identities",
        examine=examine_step,
    ),
    Claim(
        id="A.alg.gd",
        title="At p = 2 mirror descent is gradient descent",
        statement="With psi = |W|^2 / 2 the step is that of gradient descent, and the directional"
        " divergence is one minus the cosine.",
        source=SOURCE + "algorithm lp-AttGD",
        provenance=Provenance.SEEN,
        published="exact",
        experiment="identities",
        examine=examine_gd,
    ),
    Claim(
        id="A.thm.path",
        title="The regularisation path goes to the max-margin direction of the optimal tokens",
        statement="With a fixed head, unique optimal tokens and a W that separates them, the"
        " minimiser of the loss on the lp ball of radius R tends in direction to the lp max-margin"
        " solution as R grows.",
        source=SOURCE + "theorem on lp-AttRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="paths",
        examine=examine_path,
        figures=("paths",),
    ),
    Claim(
        id="A.thm.local-path",
        title="Restricted to a cone, the path goes to the local max-margin direction",
        statement="If the minimisation is restricted to the cone of a locally optimal direction,"
        " the path tends to that direction instead.",
        source=SOURCE + "theorem on lp-AttRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="cone-paths",
        examine=examine_local_path,
        should_hold=False,
    ),
    Claim(
        id="A.thm.divergence",
        title="Near a locally optimal direction there is no stationary point, and |W| diverges",
        statement="Around every locally optimal direction there is a cone in which the loss falls"
        " towards it; mirror descent with a small rate that starts there has a falling loss and a"
        " norm without bound.",
        source=SOURCE + "theorem on norm divergence",
        provenance=Provenance.RECALLED,
        published="<grad L, W_mm> < 0, |W| → ∞",
        experiment="cones",
        examine=examine_cone,
        figures=("cones",),
    ),
    Claim(
        id="A.thm.direction",
        title="Mirror descent converges in direction to the local max-margin solution",
        statement="Started in the cone of a locally optimal direction, far enough out, mirror"
        " descent with a small constant rate tends in direction to the lp max-margin solution of"
        " those tokens.",
        source=SOURCE + "theorem on directional convergence",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="cones",
        examine=examine_direction,
        figures=("cones",),
    ),
    Claim(
        id="A.thm.local",
        title="Which tokens are selected depends on the start, and they are locally optimal",
        statement="The result is local: from random starts training ends at the optimal tokens or"
        " at other ones, whose support tokens all score lower.",
        source=SOURCE + "theorem on directional convergence",
        provenance=Provenance.RECALLED,
        published="local",
        experiment="directions",
        examine=examine_local,
        figures=("basins",),
    ),
    Claim(
        id="A.thm.rate",
        title="The divergence falls poly-logarithmically, with three cases of p",
        statement="With a small constant rate, D is O((log k)^-(p-1)) for p < 2,"
        " O(log log k / log k) at p = 2 and O(1 / log k) for p > 2.",
        source=SOURCE + "theorem on the rate",
        provenance=Provenance.RECALLED,
        published="O((log k)^-(p-1)), O(log log k / log k), O(1 / log k)",
        experiment="rates",
        examine=examine_rate,
        figures=("rates",),
    ),
    Claim(
        id="A.thm.growth",
        title="With a constant rate the norm grows like log k",
        statement="The key step of the rate: |W_k|_p = Theta(log k) when steps are not normalised.",
        source=SOURCE + "proof of the rate",
        provenance=Provenance.RECALLED,
        published="Θ(log k)",
        experiment="rates",
        examine=examine_growth,
        figures=("rates",),
    ),
    Claim(
        id="A.thm.normalized-growth",
        title="With normalised steps the norm grows like (lr k)^(1/(p-1))",
        statement="The dual variable grows by at most lr in dual norm each step, so that"
        " |W_k|_p <= (lr k)^(1/(p-1)); training comes close to it. Hence the published budgets of"
        " 1500, 2000 and 20000 steps.",
        source=SOURCE + "normalised lp-AttGD",
        provenance=Provenance.DERIVED,
        published="",
        experiment="directions",
        examine=examine_normalized_growth,
        figures=("directions",),
    ),
    Claim(
        id="A.thm.joint-path",
        title="The joint regularisation path takes W and v to their max-margin directions",
        statement="When every sequence supports the decoder and attention elsewhere costs label"
        " margin, the joint minimisers over growing lp balls tend in direction to the max-margin"
        " decoder and the max-margin W.",
        source=SOURCE + "theorem on lp-JointRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="joint-paths",
        examine=examine_joint_path,
        figures=("joint-paths",),
    ),
    Claim(
        id="A.thm.joint-relaxed",
        title="Where a sequence does not support the decoder, W goes to the relaxed solution",
        statement="If some sequences are no support vectors of the decoder, the joint path takes W"
        " to the solution that asks no lead of one in these sequences.",
        source=SOURCE + "theorem on lp-JointRP",
        provenance=Provenance.RECALLED,
        published="D → 0",
        experiment="joint-paths",
        examine=examine_relaxed,
        figures=("joint-paths",),
    ),
)
