import itertools
import re

import pytest

from mirrormargin.figures.palette import HEAT, find_color

GROUPS = ["p = 1.1", "p = 1.75", "p = 2", "p = 3", "p = 10", "gradient descent", "normalised"]


def _channels(color: str) -> list[int]:
    return [int(color[i : i + 2], 16) for i in (1, 3, 5)]


def _luminance(color: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("group", [*GROUPS, "Polyak", "", "anything else"])
def test_a_group_has_one_colour_that_can_be_read_on_both_papers(group: str) -> None:
    color = find_color(group)
    assert color == find_color(group)
    assert all(re.fullmatch("#[0-9a-f]{6}", one) for one in color)
    assert _contrast(color.light, "#ffffff") >= 3
    assert _contrast(color.dark, "#14161a") >= 3


def test_a_longer_group_of_the_same_exponent_has_the_same_colour() -> None:
    assert find_color("p = 1.5, normalised") == find_color("p = 1.5")
    assert find_color("p = 1.5") != find_color("p = 15")


def test_the_exponents_of_the_papers_are_far_apart() -> None:
    for a, b in itertools.combinations(["p = 1.75", "p = 2", "p = 3"], 2):
        for one, other in zip(find_color(a), find_color(b), strict=True):
            pairs = zip(_channels(one), _channels(other), strict=True)
            assert sum(abs(x - y) for x, y in pairs) > 100


def test_exponents_below_two_are_cold_and_above_warm() -> None:
    for p in (1.05, 1.25, 1.5, 1.75, 1.99):
        for color in find_color(f"p = {p}"):
            red, _, blue = _channels(color)
            assert blue > red
    for p in (2.01, 2.5, 3.0, 4.0):
        for color in find_color(f"p = {p}"):
            red, _, blue = _channels(color)
            assert red > blue


def test_the_heat_scale_runs_from_paper_to_ink_without_turning() -> None:
    light = [_luminance(color.light) for color in HEAT]
    dark = [_luminance(color.dark) for color in HEAT]
    assert light == sorted(light, reverse=True)
    assert dark == sorted(dark)
