"""The same numbers in other layouts of memory, for results that must not depend on it."""

import numpy as np


def layouts(x):
    """The same numbers as others may hold them: reversed, strided, transposed, moved, read-only."""
    yield x[..., ::-1].copy()[..., ::-1]
    yield np.repeat(x, 3, axis=-1)[..., ::3]
    yield np.asfortranarray(x)
    for offset in (1, 3):
        moved = np.empty(x.size + 8)[offset : offset + x.size].reshape(x.shape)
        moved[...] = x
        yield moved
    # Not even aligned to a float.
    raw = np.empty(x.nbytes + 8, np.uint8)[1 : 1 + x.nbytes].view(np.float64).reshape(x.shape)
    raw[...] = x
    yield raw
    kept = x.copy()
    kept.flags.writeable = False
    yield kept
