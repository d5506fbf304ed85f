"""Where must training end? The lp max-margin problems, solved with certificates."""

from mirrormargin.svm.attention_svm import AttentionSVM, solve_attention_svm
from mirrormargin.svm.decoder_svm import DecoderSVM, solve_decoder_svm
from mirrormargin.svm.interior.program import Status
from mirrormargin.svm.local_optimality import is_locally_optimal
from mirrormargin.svm.many_attention_svms import AttentionSVMs, solve_many
from mirrormargin.svm.nuclear_svm import NuclearSVM, solve_nuclear_svm
from mirrormargin.svm.solution import (
    CertifiedSolution,
    FarkasCertificate,
    MaxMarginSolution,
    Residuals,
)

__all__ = [
    "AttentionSVM",
    "AttentionSVMs",
    "CertifiedSolution",
    "DecoderSVM",
    "FarkasCertificate",
    "MaxMarginSolution",
    "NuclearSVM",
    "Residuals",
    "Status",
    "is_locally_optimal",
    "solve_attention_svm",
    "solve_decoder_svm",
    "solve_many",
    "solve_nuclear_svm",
]
