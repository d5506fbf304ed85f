"""How fast something falls along a run, and whether as fast as claimed."""

from mirrormargin.dynamics.rates.fit import (
    LEAST_DECADES,
    BoundCheck,
    RateFit,
    RateVerdict,
    bound_holds,
    choose_windows,
    fit_rate,
)
from mirrormargin.dynamics.rates.laws import FORMS, Rate, RateForm, claimed_rate

__all__ = [
    "FORMS",
    "LEAST_DECADES",
    "BoundCheck",
    "Rate",
    "RateFit",
    "RateForm",
    "RateVerdict",
    "bound_holds",
    "choose_windows",
    "claimed_rate",
    "fit_rate",
]
