"""The learning rate's course."""

import math

import pytest

from mirrormargin.training.building import find_factor


def course(schedule, warmup, num_steps):
    return [find_factor(schedule, warmup, step, num_steps) for step in range(num_steps)]


def test_constant_is_one():
    assert course("constant", 0.0, 7) == [1.0] * 7


def test_rise_is_linear_and_reaches_one_at_its_end():
    assert course("constant", 0.5, 8) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert course("constant", 1.0, 4) == [0.25, 0.5, 0.75, 1.0]


def test_cosine_is_half_a_wave_after_the_rise():
    factors = course("cosine", 0.2, 10)
    assert factors[:2] == [0.5, 1.0]
    for k in range(2, 10):
        assert factors[k] == pytest.approx((1 + math.cos(math.pi * (k - 2) / 8)) / 2, abs=1e-15)


def test_line_falls_evenly_after_the_rise_to_the_final_rate():
    assert course("linear", 0.2, 10) == pytest.approx([0.5, 1.0, *(1 - k / 8 for k in range(8))])
    rates = [find_factor("linear", 0.0, step, 4, 0.2) for step in range(4)]
    assert rates == pytest.approx([1.0, 0.8, 0.6, 0.4])


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.33, 1.0])
@pytest.mark.parametrize("num_steps", [1, 2, 7, 100])
def test_factors_are_positive_and_at_most_one_and_fall_after_the_rise(schedule, warmup, num_steps):
    factors = course(schedule, warmup, num_steps)
    assert all(0 < factor <= 1 for factor in factors)
    falling = factors[math.ceil(warmup * num_steps) :]
    assert falling == sorted(falling, reverse=True)
