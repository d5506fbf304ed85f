"""In which space do we measure? Potentials, norms, divergences, and compiled kernels for them."""

from mirrormargin.geometry.elastic_net import ElasticNetPotential
from mirrormargin.geometry.group_lp import GroupLpPotential
from mirrormargin.geometry.hypentropy import HypentropyPotential
from mirrormargin.geometry.lp import LpPotential, directional_divergence
from mirrormargin.geometry.norms import lp_norm, signed_power
from mirrormargin.geometry.potential import Potential

__all__ = [
    "ElasticNetPotential",
    "GroupLpPotential",
    "HypentropyPotential",
    "LpPotential",
    "Potential",
    "directional_divergence",
    "lp_norm",
    "signed_power",
]
