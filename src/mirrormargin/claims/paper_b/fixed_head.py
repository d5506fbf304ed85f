"""Paper B with a fixed decoder: global convergence and its rates."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import (
    all_at_least,
    all_at_most,
    rate_at_least,
    share_at_least,
    smaller,
)
from mirrormargin.claims.claim import Check, Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.paper_b.fits import LATE, fit_late

__all__ = ["CLAIMS"]

NEAR = 1e-4  # 1 - cos that counts as arrived


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
    late = evidence["steps"] >= LATE
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


def examine_descent(evidence: Evidence) -> Finding:
    from mirrormargin.dynamics import fit_rate

    log_k = np.log(10) * evidence["flow_log10_k"]
    after = evidence["flow_log10_k"][0] >= 20
    fit = fit_rate(
        "log",
        log_steps=log_k[:, after],
        values=evidence["flow_divergence"][:, after],
        claimed=1.0,
    )
    lead = evidence["flow_norm"][:, -1] / (evidence["target_norm"] * log_k[:, -1])
    return Finding(
        [
            rate_at_least("exponent of 1 - cos ~ (log t)^-a", fit),
            all_at_least("|W| / (|W_mm| log t), least", lead, 0.9),
            all_at_most("|W| / (|W_mm| log t), largest", lead, 1.1),
        ],
        f"1 - cos ~ (log t)^-{fit.exponent:.2f}, |W| = {lead.mean():.3f} |W_mm| log t",
    )


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
                smaller(f"{text} of GD less that of {name}", last[:, rule], last[:, best])
            )
        size = evidence["norm"][:, :, -1]
        checks.append(smaller(f"norm of {name} less that of GD", size[:, best], size[:, rule]))
    return Finding(
        checks,
        f"after {evidence['steps'][-1]} steps GD, at the best of {len(rates)} rates, is"
        f" {times:,.0f} times as far away as NGD",
    )


def _find(evidence: Evidence, rule: str) -> list[int]:
    return np.flatnonzero(evidence["rule"] == rule).tolist()


SOURCE = "paper B, "

CLAIMS = (
    Claim(
        id="B.thm.ngd-global",
        title="Normalised gradient descent reaches the max-margin direction from any start",
        statement="With nearly orthogonal tokens and equal scores of all tokens but the optimal"
        " one, normalised gradient descent selects the optimal tokens and tends to W_mm from every"
        " start.",
        source=SOURCE + "theorem on NGD with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="global convergence",
        experiment="steps",
        examine=examine_global,
        figures=("steps",),
    ),
    Claim(
        id="B.thm.ngd-rate",
        title="Its direction error is O(t^-1/2), up to logarithms",
        statement="The norm grows like lr t and the distance of directions falls like t^(-1/2) at"
        " least, that is 1 - cos like 1/t.",
        source=SOURCE + "theorem on NGD with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1/t), |W_t| = Θ(t)",
        experiment="steps",
        examine=examine_rate,
        figures=("steps",),
    ),
    Claim(
        id="B.sparsification",
        title="Attention maps sparsify exponentially fast",
        statement="Under normalised gradient descent the attention that a sequence does not give"
        " its optimal token falls exponentially in t, as the lead |W_t| / |W_mm| grows.",
        source=SOURCE + "theorem on sparsification",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t))",
        experiment="steps",
        examine=examine_sparsification,
        figures=("steps", "attention"),
    ),
    Claim(
        id="B.thm.loss",
        title="The loss gap falls exponentially and, after a while, in every step",
        statement="L(W_t) - L* decays exponentially in t under normalised gradient descent.",
        source=SOURCE + "theorem on the loss",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t))",
        experiment="steps",
        examine=examine_loss,
        figures=("steps",),
    ),
    Claim(
        id="B.thm.polyak",
        title="Polyak steps have the same limit and a finite-time rate",
        statement="With Polyak's step size, at half or at the whole of the decrease that it aims"
        " for, W tends to the same direction, at the rate class of normalised steps.",
        source=SOURCE + "theorem on Polyak steps",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1/t)",
        experiment="steps",
        examine=examine_polyak,
        figures=("steps",),
    ),
    Claim(
        id="B.thm.gd",
        title="Plain gradient descent converges only logarithmically",
        statement="Without normalisation |W_t| grows like log t, and the direction error falls like"
        " a power of 1 / log t.",
        source=SOURCE + "comparison with gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1 / log t), |W_t| = Θ(log t)",
        experiment="steps",
        examine=examine_descent,
        figures=("steps",),
    ),
    Claim(
        id="B.fig.fixed",
        title="Gradient descent lags; normalised and Polyak steps behave alike",
        statement="On synthetic data with a fixed decoder, loss, attention, norm and cosine of"
        " normalised and Polyak steps run far ahead of those of gradient descent.",
        source=SOURCE + "synthetic figure with a fixed decoder",
        provenance=Provenance.RECALLED,
        published="GD lags",
        experiment="steps",
        examine=examine_figure,
        figures=("steps",),
    ),
)
