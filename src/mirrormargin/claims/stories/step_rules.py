r"""Gradient descent, normalised steps and Polyak's, on problems where theory is global.

Tokens are nearly orthogonal and all tokens of a sequence but one score alike. Starts are random.

Axes: S seeds, K rules, R recorded steps, F recorded decades.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import StepRule
from mirrormargin.claims.checks import (
    FIRST_FITTED,
    all_at_least,
    all_at_most,
    fit_late,
    rate_at_least,
    share_at_least,
    surely_smaller,
)
from mirrormargin.claims.claim import Check, Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.stories import gradient_descent
from mirrormargin.claims.story import Arrays, Settings, Story, split_seeds
from mirrormargin.figures import Axis, Figure, Panel, Series
from mirrormargin.figures.spread import find_median

__all__ = ["STORY"]

RULES: tuple[tuple[StepRule, float], ...] = (
    ("normalized", 1.0),
    ("polyak", 0.5),
    ("polyak", 1.0),
    ("constant", 1.0),
    ("constant", 10.0),
    ("constant", 100.0),
    ("constant", 300.0),
    ("constant", 1000.0),
)
NEAR = 1e-4  # 1 - cos that counts as arrived
Array = NDArray[np.float64]
NAMES = {"constant": "gradient descent", "normalized": "normalised", "polyak": "Polyak"}
QUANTILES = (0.1, 0.9)

ARRAYS = {
    "rule, lr": 'K: "constant", "normalized" or "polyak", and its rate',
    "steps": "R",
    "seed": "S",
    "divergence": "S K R: 1 - cos to the max-margin solution of the optimal tokens",
    "norm, log_loss_gap, log_unattended, attention": "S K R: logs are natural",
    "optimal": "S K: share of sequences that select their optimal token in the end",
    "target_norm": "S: |W_mm|, so that the margin of W_mm is 1 / |W_mm|",
    "flow_log10_k, flow_divergence, flow_norm": "S F: gradient descent with a small rate, for ever",
}


def split(settings: Settings) -> list[list[int]]:
    return split_seeds(settings, first=0, size=5)


def run(settings: Settings, seeds: Any) -> Arrays:
    import mirrormargin as mm

    problems = [mm.synthetic.equal_scores(seed) for seed in seeds]
    best = np.stack([problem.optimal_tokens for problem in problems])
    target = mm.solve_many(problems, best[:, None, None], tol=1e-12, threads=1).W
    # A start depends on the seed alone, not on how seeds are split.
    starts = np.stack(
        [0.1 * np.random.default_rng([seed, 7]).normal(size=target.shape[-2:]) for seed in seeds]
    )[:, None, None]
    names = ("divergence", "norm", "log_loss_gap", "log_unattended", "attention")
    kept: dict[str, list[Any]] = {name: [] for name in (*names, "optimal", "steps")}
    for rule, lr in RULES:
        record = mm.train_attention(
            problems,
            step_rule=rule,
            lr=lr,
            num_steps=settings["num_steps"],
            init=starts,
            target=target,
            record=settings["num_points"],
            threads=1,
        )
        for name in names:
            kept[name].append(getattr(record, name)[:, 0, 0])
        kept["steps"].append(record.steps[0, 0, 0])
        kept["optimal"].append((record.final_selection[:, 0, 0] == best).mean(axis=-1))
    flows = [
        mm.mirror_flow(problem, 2.0, settings["decades"], init=start[0, 0], record=1)
        for problem, start in zip(problems, starts, strict=True)
    ]
    return {
        "rule": np.array([rule for rule, _ in RULES]),
        "lr": np.array([lr for _, lr in RULES]),
        "steps": kept["steps"][0],
        "seed": np.array(seeds),
        **{name: np.stack(kept[name], axis=1) for name in (*names, "optimal")},
        "target_norm": np.linalg.norm(target[:, 0, 0], axis=(-2, -1)),
        "flow_log10_k": np.stack([flow.log10_k for flow in flows]),
        "flow_divergence": np.stack([flow.divergence for flow in flows]),
        "flow_norm": np.stack([flow.norm for flow in flows]),
    }


def examine_global(evidence: Evidence) -> Finding:
    chosen = _find(evidence, "normalized")[0]
    D = evidence["divergence"][:, chosen, -1]
    return Finding(
        [
            all_at_least("share of optimal tokens", evidence["optimal"][:, chosen], 1.0),
            all_at_most("1 - cos at the end", D, NEAR),
        ],
        f"1 - cos ≤ {D.max():.1e} in all {len(D)} runs",
    )


def examine_rate(evidence: Evidence) -> Finding:
    chosen = _find(evidence, "normalized")[0]
    fit = fit_late(evidence, "power", "divergence", claimed=1.0, chosen=chosen)
    length = evidence["norm"][:, chosen, -1] / (evidence["lr"][chosen] * evidence["steps"][-1])
    return Finding(
        [
            rate_at_least("exponent of 1 - cos ~ t^-a", fit),
            all_at_least("|W_t| / (lr t), least", length, 0.9),
            all_at_most("|W_t| / (lr t), largest", length, 1.1),
        ],
        f"1 - cos ~ t^-{fit.exponent:.2f}, |W_t| / (lr t) = {length.mean():.3f}",
    )


def examine_sparsification(evidence: Evidence) -> Finding:
    chosen = _find(evidence, "normalized")[0]
    late = evidence["steps"] >= FIRST_FITTED
    fit = fit_late(evidence, "exp", "log_unattended", claimed=1.0, chosen=chosen)
    fallen = np.ptp(evidence["log_unattended"][:, chosen][:, late], axis=1)
    grown = np.ptp(evidence["norm"][:, chosen][:, late], axis=1)
    speed = fallen / grown * evidence["target_norm"]
    return Finding(
        [
            rate_at_least("exponent a of 1 - attention ~ exp(-C t^a)", fit),
            all_at_least("speed against |W_t| / |W_mm|, least", speed, 0.95),
            all_at_most("speed against |W_t| / |W_mm|, largest", speed, 1.05),
        ],
        f"1 - attention ~ exp(-{fit.coefficient:.3f} t), exp(-{speed.mean():.4f} |W_t| / |W_mm|)",
    )


def examine_loss(evidence: Evidence) -> Finding:
    chosen = _find(evidence, "normalized")[0]
    fit = fit_late(evidence, "exp", "log_loss_gap", claimed=1.0, chosen=chosen)
    after = evidence["log_loss_gap"][:, chosen][:, evidence["steps"] >= 10]
    return Finding(
        [
            rate_at_least("exponent a of L - L* ~ exp(-C t^a)", fit),
            share_at_least("recorded steps from 10 on in which L falls", np.diff(after) < 0),
        ],
        f"L - L* ~ exp(-{fit.coefficient:.3f} t), monotone from step 10 on",
    )


def examine_polyak(evidence: Evidence) -> Finding:
    checks: list[Check] = []
    texts = []
    for chosen in _find(evidence, "polyak"):
        factor, D = evidence["lr"][chosen], evidence["divergence"][:, chosen, -1]
        fit = fit_late(evidence, "power", "divergence", claimed=1.0, chosen=chosen)
        checks += [
            all_at_most(f"1 - cos at the end, factor {factor:g}", D, NEAR),
            rate_at_least(f"exponent of 1 - cos ~ t^-a, factor {factor:g}", fit),
        ]
        texts.append(f"factor {factor:g}: 1 - cos ≤ {D.max():.1e}, ~ t^-{fit.exponent:.2f}")
    return Finding(checks, "; ".join(texts))


def examine_figure(evidence: Evidence) -> Finding:
    D = evidence["divergence"][:, :, -1]
    normalized, polyak = _find(evidence, "normalized")[0], _find(evidence, "polyak")
    rates = _find(evidence, "constant")
    best = rates[int(np.median(D[:, rates], axis=0).argmin())]
    times = np.median(D[:, best]) / np.median(D[:, normalized])
    alike = [abs(np.log10(np.median(D[:, normalized]) / np.median(D[:, k]))) for k in polyak]
    checks = [
        all_at_least("1 - cos of GD over that of NGD, medians", times, 10.0),
        all_at_most("decades between 1 - cos of NGD and of Polyak", alike, 1.5),
    ]
    lower = {
        "1 - cos": "divergence",
        "log loss gap": "log_loss_gap",
        "log 1 - attention": "log_unattended",
    }
    for name, rule in (("NGD", normalized), ("Polyak", polyak[-1])):
        for text, key in lower.items():
            last = evidence[key][:, :, -1]
            checks.append(
                surely_smaller(f"{text} of GD less that of {name}", last[:, rule], last[:, best])
            )
        size = evidence["norm"][:, :, -1]
        checks.append(
            surely_smaller(f"norm of {name} less that of GD", size[:, best], size[:, rule])
        )
    return Finding(
        checks,
        f"after {evidence['steps'][-1]} steps GD, at the best of {len(rates)} rates, is"
        f" {times:,.0f} times as far away as NGD",
    )


def _find(evidence: Evidence, rule: str) -> list[int]:
    return np.flatnonzero(evidence["rule"] == rule).tolist()


CLAIMS = (
    Claim(
        id="B.thm.ngd-global",
        title="Normalised gradient descent reaches the max-margin direction from any start",
        statement="With nearly orthogonal tokens and equal scores of all tokens but the optimal"
        " one, normalised gradient descent selects the optimal tokens and tends to W_mm from every"
        " start.",
        source="paper B, theorem on NGD with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="global convergence",
        examine=examine_global,
    ),
    Claim(
        id="B.thm.ngd-rate",
        title="Its direction error is O(t^-1/2), up to logarithms",
        statement="The norm grows like lr t and the distance of directions falls like t^(-1/2) at"
        " least, that is 1 - cos like 1/t.",
        source="paper B, theorem on NGD with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1/t), |W_t| = Θ(t)",
        examine=examine_rate,
    ),
    Claim(
        id="B.sparsification",
        title="Attention maps sparsify exponentially fast",
        statement="Under normalised gradient descent the attention that a sequence does not give"
        " its optimal token falls exponentially in t, as the lead |W_t| / |W_mm| grows.",
        source="paper B, theorem on sparsification",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t))",
        examine=examine_sparsification,
        figures=("steps", "attention"),
    ),
    Claim(
        id="B.thm.loss",
        title="The loss gap falls exponentially and, after a while, in every step",
        statement="L(W_t) - L* decays exponentially in t under normalised gradient descent.",
        source="paper B, theorem on the loss",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t))",
        examine=examine_loss,
    ),
    Claim(
        id="B.thm.polyak",
        title="Polyak steps have the same limit and a finite-time rate",
        statement="With Polyak's step size, at half or at the whole of the decrease that it aims"
        " for, W tends to the same direction, at the rate class of normalised steps.",
        source="paper B, theorem on Polyak steps",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1/t)",
        examine=examine_polyak,
    ),
    Claim(
        id="B.fig.fixed",
        title="Gradient descent lags; normalised and Polyak steps behave alike",
        statement="On synthetic data with a fixed decoder, loss, attention, norm and cosine of"
        " normalised and Polyak steps run far ahead of those of gradient descent.",
        source="paper B, synthetic figure with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="GD lags",
        examine=examine_figure,
    ),
)


def draw_step_rules(evidence: Evidence) -> Figure:
    with np.errstate(divide="ignore", invalid="ignore"):
        log_divergence = np.log10(evidence["divergence"])
    quantities: tuple[tuple[str, str, str, Array], ...] = (
        (
            "direction",
            "log₁₀(1 − cos)",
            "linear",
            np.where(np.isfinite(log_divergence), log_divergence, np.nan),
        ),
        ("loss", "log₁₀ of the loss gap", "linear", evidence["log_loss_gap"] / np.log(10)),
        ("attention", "log₁₀(1 − attention)", "linear", evidence["log_unattended"] / np.log(10)),
        ("norm", "‖W‖", "log", evidence["norm"]),
    )
    entries = _name_entries(evidence)
    panels = tuple(
        Panel(
            title,
            Axis("step", "log"),
            Axis(label, scale),
            tuple(
                Series(
                    name,
                    evidence["steps"],
                    *find_median(values[:, k], *QUANTILES),
                    style=style,
                    group=group,
                    visible=visible,
                )
                for k, (name, group, style, visible) in enumerate(entries)
            ),
        )
        for title, label, scale, values in quantities
    )
    return Figure(
        "steps",
        "Normalised and Polyak steps against gradient descent",
        f"Median over {evidence['seed'].size} problems with equal scores and nearly orthogonal"
        " tokens, with the range from the 10th to the 90th of a hundred. Of gradient descent the"
        " best rate is shown; the legend has the others.",
        panels,
    )


def _name_entries(evidence: Evidence) -> list[tuple[str, str, str, bool]]:
    """Name, colour group, style and visibility of each rule."""
    rules, rates = evidence["rule"].tolist(), evidence["lr"].tolist()
    ends = np.median(evidence["divergence"][..., -1], axis=0)
    best = {
        rule: min((k for k, one in enumerate(rules) if one == rule), key=lambda k: ends[k])
        for rule in rules
    }
    entries = []
    for k, (rule, rate) in enumerate(zip(rules, rates, strict=True)):
        group = NAMES.get(rule, rule)
        word = "factor" if rule == "polyak" else "lr ="
        name = group if rules.count(rule) == 1 else f"{group}, {word} {rate:g}"
        shown = k == best[rule] or rule == "polyak"
        entries.append((name, group, "line" if k == best[rule] else "dotted", shown))
    return entries


STORY = Story(
    name="steps",
    title="gradient descent, normalised and Polyak steps on nearly orthogonal tokens",
    arrays=ARRAYS,
    profiles={
        "quick": {"num_seeds": 10, "num_steps": 1000, "num_points": 60, "decades": 100},
        "full": {"num_seeds": 100, "num_steps": 1000, "num_points": 100, "decades": 300},
    },
    split=split,
    run=run,
    draw=(draw_step_rules,),
    claims=(*CLAIMS, *gradient_descent.CLAIMS),
)
