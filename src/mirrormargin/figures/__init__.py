"""What is a picture? Panels, series, scales and colours as plain data: no drawing library.

The rooms that make numbers also make their figures, and ``report`` renders them:

    figure       Figure, Panel, Axis, Series, HeatFrames, Table
    highlights   texts whose words are shaded
    palette      what colours mean
    spread       means, medians and shares, with the bands around them
    maps, plane, weights    parts that several figures share
"""

from mirrormargin.figures.figure import Axis, Figure, HeatFrames, Panel, Series, Table
from mirrormargin.figures.highlights import HighlightedText, HighlightedTexts

__all__ = [
    "Axis",
    "Figure",
    "HeatFrames",
    "HighlightedText",
    "HighlightedTexts",
    "Panel",
    "Series",
    "Table",
]
