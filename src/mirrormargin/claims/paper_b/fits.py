"""Rates are fitted to the later steps of a training, over all seeds."""

from __future__ import annotations

from typing import Any

from mirrormargin.claims.evidence import Evidence

__all__ = ["LATE", "fit_late"]

LATE = 100  # the first step that a fit uses


def fit_late(
    evidence: Evidence,
    form: str,
    name: str,
    *,
    claimed: float | None = None,
    chosen: int | None = None,
) -> Any:
    """The decay of an array, (S, R), or of one of its rules, (S, K, R); logs if so named."""
    from mirrormargin.dynamics import fit_rate

    values = evidence[name] if chosen is None else evidence[name][:, chosen]
    late, is_log = evidence["steps"] >= LATE, name.startswith("log_")
    return fit_rate(
        form,
        steps=evidence["steps"][late],
        values=None if is_log else values[:, late],
        log_values=values[:, late] if is_log else None,
        claimed=claimed,
    )
