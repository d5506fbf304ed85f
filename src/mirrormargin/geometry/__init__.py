"""What space? Potentials, norms and divergences, and the compiled kernels behind them."""

from mirrormargin.geometry.divergence import directional_divergence
from mirrormargin.geometry.hypentropy import HypentropyPotential
from mirrormargin.geometry.lp import LpPotential
from mirrormargin.geometry.norms import lp_norm
from mirrormargin.geometry.potential import Potential

__all__ = [
    "HypentropyPotential",
    "LpPotential",
    "Potential",
    "directional_divergence",
    "lp_norm",
]
