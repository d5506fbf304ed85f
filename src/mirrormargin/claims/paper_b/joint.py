"""Paper B with a trained decoder: normalised steps that shrink."""

from __future__ import annotations

import numpy as np

from mirrormargin.claims.checks import (
    all_at_least,
    all_at_most,
    rate_at_least,
    rate_decays,
    share_at_least,
)
from mirrormargin.claims.claim import Claim, Finding, Provenance
from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.paper_b.fits import LATE, fit_late

__all__ = ["CLAIMS"]

LR = 0.5


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
    falling = np.diff(evidence["log_unattended"][:, evidence["steps"] >= LATE], axis=1) < 0
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


SOURCE = "paper B, joint training, steps of W ~ 1/(t+1) and of v ~ (t+1)^(-2/3): "

CLAIMS = (
    Claim(
        id="B.thm.joint-loss",
        title="Joint training: the loss falls like exp(-t^(1/3))",
        statement="With one signal token among noise, joint normalised training from zero has a"
        " loss of O(exp(-c t^(1/3))).",
        source=SOURCE + "theorem on the loss",
        provenance=Provenance.RECALLED,
        published="exp(-Θ(t^(1/3)))",
        experiment="joint-steps",
        examine=examine_loss,
        figures=("joint-steps",),
    ),
    Claim(
        id="B.thm.joint-direction",
        title="Joint training: W converges in direction at a logarithmic rate",
        statement="W tends to the max-margin solution of the signal tokens, globally, with an error"
        " of the class 1 / log t.",
        source=SOURCE + "theorem on W",
        provenance=Provenance.RECALLED,
        published="O(1 / log t)",
        experiment="joint-steps",
        examine=examine_direction,
        figures=("joint-steps",),
    ),
    Claim(
        id="B.thm.joint-decoder",
        title="Joint training: the decoder converges at a polynomial rate",
        statement="The decoder's label margin tends to the largest one polynomially in t.",
        source=SOURCE + "theorem on the decoder",
        provenance=Provenance.RECALLED,
        published="polynomial in 1/t",
        experiment="joint-steps",
        examine=examine_decoder,
        figures=("joint-steps",),
    ),
    Claim(
        id="B.thm.joint-attention",
        title="Joint training: attention goes to the signal tokens polynomially",
        statement="As |W_t| grows like log t, the attention that is not on the signal token falls"
        " like a power of t.",
        source=SOURCE + "consequence of the rates",
        provenance=Provenance.DERIVED,
        published="polynomial in 1/t",
        experiment="joint-steps",
        examine=examine_attention,
        figures=("joint-steps",),
    ),
    Claim(
        id="B.fig.joint",
        title="Joint training: |W| grows like log t and |v| like t^(1/3)",
        statement="The norms add up the steps: lr log t for W and 3 lr t^(1/3) for v.",
        source=SOURCE + "synthetic figure with a trained decoder",
        provenance=Provenance.RECALLED,
        published="Θ(log t), Θ(t^(1/3))",
        experiment="joint-steps",
        examine=examine_figure,
        figures=("joint-steps",),
    ),
)
