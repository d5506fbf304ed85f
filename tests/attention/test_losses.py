"""The losses and their logarithms, against high precision."""

import mpmath as mp
import numpy as np
import pytest

from mirrormargin.attention.losses import LOSSES


@pytest.mark.parametrize("m", [-800.0, -30.0, 0.0, 1.0, 40.0, 700.0, 5000.0])
@pytest.mark.parametrize("log_drop", [-900.0, -37.0, -1.0, 0.0, 3.0, 8.0])
@pytest.mark.parametrize("name", ["logistic", "exponential"])
def test_log_losses_agree_with_mpmath(name, log_drop, m):
    margin_loss = LOSSES[name]
    with mp.workdps(1000):
        drop = mp.exp(log_drop)

        def loss(margin):
            return mp.log1p(mp.exp(-margin)) if name == "logistic" else mp.exp(-margin)

        value = float(mp.log(loss(mp.mpf(m))))
        rise = float(mp.log(loss(mp.mpf(m) - drop) - loss(mp.mpf(m))))
    assert margin_loss.log_value(np.array(m)) == pytest.approx(value, rel=1e-13, abs=1e-13)
    got = margin_loss.log_rise(np.array(m), np.array(log_drop))
    assert got == pytest.approx(rise, rel=1e-13, abs=1e-13)
