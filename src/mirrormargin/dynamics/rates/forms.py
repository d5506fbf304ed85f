r"""The decay laws, and the one that is claimed for the direction of attention.

    "log"       y ~ C (log k)^-a               "power"    y ~ C k^-a
    "loglog"    y ~ C (log log k / log k)^a    "exp"      y ~ exp(b - C k^a)

All but "exp" are lines in log y, log y = log C - a x(log k).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirrormargin.arguments import check_exponent
from mirrormargin.errors import ProblemError

__all__ = ["FORMS", "Rate", "RateForm", "claimed_rate"]

Array = NDArray[np.float64]


class RateForm(NamedTuple):
    """A decay law: its text, the log k after which it falls, and its coordinate x(log k)."""

    law: str
    after: float
    coordinate: Callable[[Array], Array]


FORMS = {
    "log": RateForm("{C}(log k)^{minus_a}", 0.0, np.log),
    # log log k / log k rises until log k = e: points before would tilt the line the wrong way.
    "loglog": RateForm(
        "{C}(log log k / log k)^{a}", float(np.e), lambda log_k: np.log(log_k / np.log(log_k))
    ),
    "power": RateForm("{C}k^{minus_a}", -np.inf, np.positive),
    "exp": RateForm("exp({b} - {C}k^{a})", -np.inf, np.positive),
}


@dataclass(frozen=True)
class Rate:
    """The rate ``exp(-a x)`` of a form other than "exp", a function of the logs of the steps."""

    form: str
    exponent: float

    def __call__(self, log_steps: Any) -> Array:
        """The rate at natural logs of steps, nan where the form has none."""
        with np.errstate(all="ignore"):
            x = FORMS[self.form].coordinate(np.asarray(log_steps, dtype=np.float64))
            return np.exp(-self.exponent * x)

    def __str__(self) -> str:
        a, minus_a = f"{self.exponent:g}", f"{-self.exponent:g}"
        return FORMS[self.form].law.format(C="", a=a, minus_a=minus_a).removesuffix("^1")


def claimed_rate(p: float) -> tuple[str, Rate]:
    """The proven rate of the directional divergence between W_mm and mirror descent in lp.

    It is (log k)^-(p - 1) for p below 2, log log k / log k at 2, and 1 / log k above, up to a
    factor; the steps are those of constant size, whose weights grow like log k.

    Args:
        p: Exponent of the geometry, above 1.

    Returns:
        Its name, and the rate as a function of the natural logs of the steps, whose ``form`` and
        ``exponent`` are what ``fit_rate`` takes as ``form`` and ``claimed``.

    Raises:
        ProblemError: (a ValueError) If p is not a finite number above 1.

    Example:
        >>> claimed_rate(1.75)[0], claimed_rate(2.0)[0], claimed_rate(3.0)[0]
        ('(log k)^-0.75', '(log log k / log k)', '(log k)^-1')
    """
    p = check_exponent(p, error=ProblemError)
    rate = Rate("loglog", 1.0) if p == 2 else Rate("log", min(p - 1, 1.0))
    return str(rate), rate
