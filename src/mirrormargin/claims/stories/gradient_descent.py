"""Gradient descent with constant steps, on the runs and flows of step_rules.py."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import all_at_least, all_at_most, rate_at_least
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence

__all__ = ["CLAIMS"]


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


def examine_gd_global(evidence: Evidence) -> Finding:
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


def examine_any_start(evidence: Evidence) -> Finding:
    descent = evidence["rule"] == "constant"
    optimal, D = evidence["optimal"][:, descent], evidence["divergence"][:, descent]
    return Finding(
        [
            all_at_least("share of optimal tokens", optimal, 1.0),
            all_at_least(
                "fall of 1 - cos from the first to the last step", D[..., 0] - D[..., -1], 0.5
            ),
        ],
        f"{np.mean(optimal == 1):.0%} of {optimal.size} runs from random starts end at the optimal"
        " tokens, at every rate",
    )


CLAIMS = (
    Claim(
        id="B.thm.gd",
        title="Plain gradient descent converges only logarithmically",
        statement="Without normalisation |W_t| grows like log t, and the direction error falls like"
        " a power of 1 / log t.",
        source="paper B, comparison with gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos = O(1 / log t), |W_t| = Θ(log t)",
        examine=examine_descent,
    ),
    Claim(
        id="C1.thm.gd-global",
        title="Gradient descent is global if all tokens but the optimal ones score alike",
        statement="If the tokens of a sequence other than the optimal one have equal scores,"
        " gradient descent with a small constant rate goes from any start to the max-margin"
        " direction of the optimal tokens.",
        source="C1, theorem on global convergence of gradient descent",
        provenance=Provenance.RECALLED,
        published="1 - cos → 0",
        examine=examine_gd_global,
    ),
    Claim(
        id="C2.thm.global",
        title="In many dimensions gradient descent finds the optimal tokens",
        statement="Over-parameterisation makes the landscape benign: with wide tokens gradient"
        " descent goes from random starts to the optimal tokens.",
        source="C2, discussion of global convergence",
        provenance=Provenance.RECALLED,
        published="global convergence",
        examine=examine_any_start,
    ),
)
