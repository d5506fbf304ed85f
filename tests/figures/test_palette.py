import itertools
import re

import pytest

from mirrormargin.figures.palette import (
    DIVERGING,
    HEAT,
    choose_distinct_looks,
    find_color,
    measure_distance,
)

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


def test_small_exponents_that_people_train_with_are_told_apart() -> None:
    for a, b in itertools.combinations(["p = 1.05", "p = 1.1", "p = 1.5", "p = 2"], 2):
        for one, other in zip(find_color(a), find_color(b), strict=True):
            assert measure_distance(one, other) > 75


@pytest.mark.parametrize(
    "names",
    [
        ["AdamW", "AdamW + L1", "MirrorAdam p=1.05", "MirrorAdam p=1.1", "MirrorAdam p=1.5"],
        [f"MirrorAdam p=1.1, seed {seed}" for seed in range(8)],
        [f"p = {p}" for p in (1.01, 1.02, 1.05, 1.1, 1.2, 2, 3, 3.1)],
    ],
)
def test_no_two_runs_have_a_colour_that_could_be_the_other(names: list[str]) -> None:
    looks = choose_distinct_looks(names)
    assert [look.name for look in looks] == names
    for a, b in itertools.combinations(looks, 2):
        for one, other in zip(find_color(a.group), find_color(b.group), strict=True):
            assert measure_distance(one, other) >= 60
    for look in looks:
        color = find_color(look.group)
        assert _contrast(color.light, "#ffffff") >= 3
        assert _contrast(color.dark, "#14161a") >= 3


def test_a_run_keeps_the_colour_of_its_method_if_it_can() -> None:
    groups = [look.group for look in choose_distinct_looks(["AdamW + L1", "MirrorAdam p=1.1"])]
    assert groups == ["AdamW", "p = 1.1"]


def test_more_runs_than_colours_differ_in_dashes() -> None:
    looks = choose_distinct_looks([f"AdamW, seed {seed}" for seed in range(30)])
    assert len({(look.group, look.style) for look in looks}) == 30


def test_the_signed_scale_meets_in_the_paper() -> None:
    assert DIVERGING[len(DIVERGING) // 2] == HEAT[0]
    light = [_luminance(color.light) for color in DIVERGING]
    assert light[:3] == sorted(light[:3])
    assert light[2:] == sorted(light[2:], reverse=True)
