"""The interior point once more, compiled, for small problems; it offers what others must check."""

__all__ = ["fits_kernel"]

MAX_ROWS = 120
MAX_ENTRIES = 50_000  # of A; beyond, BLAS is faster than the kernel's loops


def fits_kernel(n: int, T: int, d: int) -> bool:
    """Whether problems of this shape are small enough for the kernel."""
    m = n * (T - 1)
    return m <= MAX_ROWS and m * d * d <= MAX_ENTRIES
