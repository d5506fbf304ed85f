r"""W and v trained together by normalised steps that shrink, on signal-and-noise problems.

    |step of W| = lr / (k + 1),    |step of v| = lr / (k + 1)^(2/3)

Axes: S seeds, R recorded steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mirrormargin.claims.checks import (
    FIRST_FITTED,
    all_at_least,
    all_at_most,
    fit_late,
    rate_at_least,
    rate_decays,
    share_at_least,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.story import Arrays, Settings, Story, split_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

LR = 0.5

ARRAYS = {
    "steps": "R",
    "seed": "S",
    "log_loss, log_unattended": "S R: natural logs; attention that is not on the signal token",
    "norm, head_norm": "S R: of W and v",
    "divergence, head_divergence": "S R: of W and v from their max-margin solutions; nan where W"
    " or v is 0",
    "head_margin_gap": "S R: 1 - label margin of v / the largest possible one; nan where v is 0",
    "optimal": "S: share of sequences that select their signal",
}


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=2)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.signal_noise(seed) for seed in seeds]
    record = mm.train_joint(
        problems,
        lr=0.5,
        decay=1.0,
        head_decay=2 / 3,
        num_steps=settings["num_steps"],
        record=settings["num_points"],
        keep_path=True,
        threads=1,
    )
    assert record.head_path is not None
    assert record.head_target is not None
    chosen = record.final_selection[:, 0, 0]
    picked = np.stack(
        [
            problem.labels[:, None] * problem.tokens[np.arange(problem.num_sequences), tokens]
            for problem, tokens in zip(problems, chosen, strict=True)
        ]
    )
    v, target = record.head_path[:, 0, 0], record.head_target[:, 0, 0]
    with np.errstate(invalid="ignore"):  # v starts at zero, which has no direction
        margin = np.einsum("snd,srd->srn", picked, v).min(axis=-1) / np.linalg.norm(v, axis=-1)
    largest = np.einsum("snd,sd->sn", picked, target).min(axis=-1) / np.linalg.norm(target, axis=-1)
    best = np.stack([problem.optimal_tokens for problem in problems])
    names = ("log_loss", "log_unattended", "norm", "head_norm", "divergence", "head_divergence")
    return {
        "steps": record.steps[0, 0, 0],
        "seed": np.array(seeds),
        **{name: getattr(record, name)[:, 0, 0] for name in names},
        "head_margin_gap": 1 - margin / largest[:, None],
        "optimal": (chosen == best).mean(axis=-1),
    }


def examine_loss(evidence: Evidence) -> Finding:
    fit = fit_late(evidence, "exp", "log_loss", claimed=1 / 3)
    return Finding(
        [rate_at_least("exponent a of L ~ exp(-C t^a)", fit)],
        f"L ~ exp(-{fit.coefficient:.2f} t^{fit.exponent:.2f})",
    )


def examine_direction(evidence: Evidence) -> Finding:
    fit = fit_late(evidence, "log", "divergence", claimed=1.0)
    return Finding(
        [
            all_at_least("share of signals selected", evidence["optimal"], 1.0),
            rate_at_least("exponent of 1 - cos ~ (log t)^-a", fit),
        ],
        f"1 - cos of W ~ (log t)^-{fit.exponent:.2f}",
    )


def examine_decoder(evidence: Evidence) -> Finding:
    margin = fit_late(evidence, "power", "head_margin_gap", claimed=1 / 3)
    cosine = fit_late(evidence, "power", "head_divergence")
    return Finding(
        [
            rate_decays("exponent of the missing label margin ~ t^-a", margin),
            rate_decays("exponent of 1 - cos of v ~ t^-a", cosine),
        ],
        f"missing margin ~ t^-{margin.exponent:.2f}, 1 - cos of v ~ t^-{cosine.exponent:.2f}",
        f"An exponent of 1/3 is recalled; that of the margin is {margin.verdict} of 1/3",
    )


def examine_attention(evidence: Evidence) -> Finding:
    fit = fit_late(evidence, "power", "log_unattended")
    falling = np.diff(evidence["log_unattended"][:, evidence["steps"] >= FIRST_FITTED], axis=1) < 0
    return Finding(
        [
            rate_decays("exponent of 1 - attention ~ t^-a", fit),
            share_at_least("recorded steps from 100 on in which it falls", falling, 0.95),
        ],
        f"1 - attention ~ t^-{fit.exponent:.2f}",
    )


def examine_figure(evidence: Evidence) -> Finding:
    t = evidence["steps"][-1] + 1
    W = evidence["norm"][:, -1] / (LR * np.log(t))
    v = evidence["head_norm"][:, -1] / (3 * LR * t ** (1 / 3))
    return Finding(
        [
            all_at_least("|W_t| / (lr log t), least", W, 0.8),
            all_at_most("|W_t| / (lr log t), largest", W, 1.1),
            all_at_least("|v_t| / (3 lr t^(1/3)), least", v, 0.8),
            all_at_most("|v_t| / (3 lr t^(1/3)), largest", v, 1.1),
        ],
        f"|W_t| = {W.mean():.2f} lr log t, |v_t| = {v.mean():.2f} · 3 lr t^(1/3)",
    )


CLAIMS = (
    Claim(
        id="B.thm.joint-loss",
        title="Joint training: the loss falls like exp(-t^(1/3))",
        statement="With one signal token among noise, joint normalised training from zero has a"
        " loss of O(exp(-c t^(1/3))).",
        source="paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3): theorem"
        " on the loss",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t^(1/3)))",
        examine=examine_loss,
    ),
    Claim(
        id="B.thm.joint-direction",
        title="Joint training: W converges in direction at a logarithmic rate",
        statement="W tends to the max-margin solution of the signal tokens, globally, with an error"
        " of the class 1 / log t.",
        source="paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3): theorem"
        " on W",
        provenance=Provenance.RECALLED,
        published="O(1 / log t)",
        examine=examine_direction,
    ),
    Claim(
        id="B.thm.joint-decoder",
        title="Joint training: the decoder converges at a polynomial rate",
        statement="The decoder's label margin tends to the largest one polynomially in t.",
        source="paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3): theorem"
        " on the decoder",
        provenance=Provenance.RECALLED,
        published="polynomial in 1/t",
        examine=examine_decoder,
    ),
    Claim(
        id="B.thm.joint-attention",
        title="Joint training: attention goes to the signal tokens polynomially",
        statement="As |W_t| grows like log t, the attention that is not on the signal token falls"
        " like a power of t.",
        source="paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3):"
        " consequence of the rates",
        provenance=Provenance.DERIVED,
        published="polynomial in 1/t",
        examine=examine_attention,
    ),
    Claim(
        id="B.fig.joint",
        title="Joint training: |W| grows like log t and |v| like t^(1/3)",
        statement="The norms add up the steps: lr log t for W and 3 lr t^(1/3) for v.",
        source="paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3):"
        " synthetic figure with a trained decoder",
        provenance=Provenance.RECALLED,
        published="Θ(log t), Θ(t^(1/3))",
        examine=examine_figure,
    ),
)


def draw_joint_steps(evidence: Evidence) -> Figure:
    steps = evidence["steps"].astype(np.float64)
    loss = find_median(-evidence["log_loss"])
    late = np.flatnonzero(steps >= 100)
    roots = np.cbrt(steps)
    slope = float(np.polyfit(roots[late], loss.middle[late], 1)[0]) if late.size > 2 else np.nan
    unattended = evidence["log_unattended"] / np.log(10)
    panels = (
        Panel(
            "loss",
            Axis("k^(1/3)"),
            Axis("−log loss"),
            (Series("loss", roots, *loss, group="target"),),
        ),
        Panel(
            "direction",
            Axis("step k", "log"),
            Axis("D", "log"),
            (
                Series("W", steps, *find_median(evidence["divergence"]), group="W"),
                Series("head", steps, *find_median(evidence["head_divergence"]), group="head"),
            ),
        ),
        Panel(
            "margin of the head",
            Axis("step k", "log"),
            Axis("share lacking", "log"),
            (Series("head", steps, *find_median(evidence["head_margin_gap"]), group="head"),),
        ),
        Panel(
            "attention",
            Axis("step k", "log"),
            Axis("log₁₀(1 − attention)"),
            (Series("W", steps, *find_median(unattended), group="W"),),
        ),
    )
    return Figure(
        "joint-steps",
        "Joint training with shrinking steps",
        f"Median over {evidence['seed'].size} problems with the least and the largest. Against the"
        f" cube root of the step −log loss rises with a slope of {slope:.2g} at the end: a straight"
        " line is the proven exp(−c k^(1/3)), a line bent upwards is faster.",
        panels,
    )


STORY = Story(
    name="joint-steps",
    title="W and v trained together by shrinking normalised steps, on signals among noise",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 20_000, "num_points": 80},
        "full": {"num_seeds": 20, "num_steps": 100_000, "num_points": 100},
    },
    split=split,
    run=run,
    draw=(draw_joint_steps,),
    claims=CLAIMS,
)
