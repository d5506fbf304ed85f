"""The weights of attention after training on IMDB: how many are large, small, zero."""

from __future__ import annotations

from mirrormargin.figures import Figure, Table
from mirrormargin.figures.palette import choose_looks, name_exponent
from mirrormargin.figures.weights import draw_histograms, join_kinds
from mirrormargin.report.sources import Evidence

__all__ = ["build_imdb_weights"]

THRESHOLD = 0.06  # the published one, which ``above`` is counted with


def build_imdb_weights(evidence: Evidence) -> Figure | None:
    if "imdb-weights" not in evidence:
        return None
    _, arrays = evidence["imdb-weights"]
    looks = choose_looks(map(name_exponent, arrays["p"]))
    rows = tuple(
        (
            f"{p:g}",
            join_kinds(arrays["above"][j]),
            join_kinds(arrays["largest"][j], ".2f"),
            join_kinds(arrays["l1_l2"][j], ".3f"),
            join_kinds(arrays["zeros"][j]),
            f"{arrays['underflowed'][j]:,.0f}",
        )
        for j, p in enumerate(arrays["p"])
    )
    return Figure(
        "imdb-weights",
        "Weights of attention after training on IMDB",
        "Entries of all key, query and value matrices by magnitude, summed over seeds. The table"
        " has means over seeds, for key / query / value; |w|₁ / (√N |w|₂) is 1 if all magnitudes"
        " are equal. Underflowed are weights of the whole model that the number format rounds to"
        " zero while their dual variables are not zero.",
        draw_histograms(looks, arrays["histogram"], arrays["bin_width"]),
        columns=3,
        table=Table(
            (
                "p",
                f"entries above {THRESHOLD:g}",
                "largest",
                "|w|₁ / (√N |w|₂)",
                "exact zeros",
                "underflowed",
            ),
            rows,
        ),
    )
