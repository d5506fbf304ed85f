"""Weights that are written past the cache are those that ordinary stores write."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mirrormargin import MirrorAdam
from mirrormargin.geometry.compiler import has_numba

pytestmark = pytest.mark.skipif(not has_numba(), reason="needs Numba")


def _make_params() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    params = []
    for size, start in ((1, 0), (255, 0), (1000, 0), (1000, 3), (40_000, 1)):  # some not aligned
        values = (torch.randn(size + start, generator=generator) * 0.3)[start:]
        gradient = torch.randn(size, generator=generator)
        gradient[::7] = 0  # these entries must not move
        if size == 1000:
            gradient[300:310] = torch.tensor([torch.nan, torch.inf]).repeat(5)
        param = torch.nn.Parameter(values)
        param.grad = gradient
        params.append(param)
    return params


@pytest.mark.parametrize("p", [1.05, 1.1, 1.2, 1.25])
def test_streamed_weights_equal_stored_ones_to_the_bit(
    p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mirrormargin.optim import compiled

    results = []
    for least in (0, 10**12):
        monkeypatch.setattr(compiled, "_MIN_STREAMED", least)
        params = _make_params()
        optimizer = MirrorAdam(params, lr=0.01, p=p)
        before = [param.detach().clone() for param in params]
        for _ in range(3):
            optimizer.step()
        results.append([param.detach() for param in params])
        for param, old in zip(params, before, strict=True):
            assert torch.equal(param.detach()[::7][:40], old[::7][:40])
            assert (param.detach()[1:250] != old[1:250]).any() or len(old) == 1
    for streamed, stored in zip(*results, strict=True):
        assert torch.equal(streamed.view(torch.int32), stored.view(torch.int32))
