"""What did fine-tuning change? Sparse changes of a model: extracted, kept, applied, served."""

from mirrormargin.deltas.comparison import DeltaComparison
from mirrormargin.deltas.sparse_delta import SparseDelta
from mirrormargin.deltas.store import DeltaStore

__all__ = ["DeltaComparison", "DeltaStore", "SparseDelta"]
