"""What every generator keeps: the same arguments, the same problem, and nothing else touched."""

import numpy as np
import pytest
import torch

import mirrormargin as mm
from mirrormargin.attention import AttentionProblem, synthetic
from mirrormargin.errors import ProblemError

SEEDED = ("unit_sphere", "equal_scores", "signal_noise", "planar_multi")
FIELDS = ("tokens", "queries", "labels", "head")

every_generator = pytest.mark.parametrize("name", synthetic.GENERATORS)
seeded_generator = pytest.mark.parametrize("name", SEEDED)


def generate(name, seed=3, **options):
    arguments = {"seed": seed} if name in SEEDED else {}
    return synthetic.GENERATORS[name](**arguments, **options)


def test_generators_are_the_public_functions_by_name():
    public = set(synthetic.__all__) - {"GENERATORS"}
    assert set(mm.synthetic.GENERATORS) == public
    for name, generator in synthetic.GENERATORS.items():
        assert generator is getattr(mm.synthetic, name)
        assert generator.__name__ == name


@every_generator
def test_same_arguments_give_the_same_bits(name):
    one, two = generate(name), generate(name)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))


@seeded_generator
def test_different_seeds_give_different_tokens(name):
    assert not np.array_equal(generate(name, seed=5).tokens, generate(name, seed=6).tokens)


@seeded_generator
def test_largest_seed_is_allowed_and_numpy_integers_are_seeds(name):
    generate(name, seed=2**64 - 1)
    np.testing.assert_array_equal(
        generate(name, seed=np.uint8(5)).tokens, generate(name, seed=5).tokens
    )


@every_generator
def test_global_random_states_are_neither_read_nor_changed(name):
    expected = generate(name)
    torch.manual_seed(0)
    np.random.seed(0)
    generate(name)
    given = (torch.rand(3).tolist(), np.random.rand(3).tolist())
    torch.manual_seed(0)
    np.random.seed(0)
    assert given == (torch.rand(3).tolist(), np.random.rand(3).tolist())
    np.testing.assert_array_equal(generate(name).tokens, expected.tokens)


@every_generator
def test_torch_defaults_do_not_change_the_problem(name):
    expected = generate(name)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            given = generate(name)
    finally:
        torch.set_default_dtype(torch.float32)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(given, field), getattr(expected, field))


@every_generator
@pytest.mark.parametrize("loss", ["logistic", "exponential", "correlation"])
def test_loss_is_passed_on_and_changes_nothing_else(name, loss):
    problem = generate(name, loss=loss)
    assert isinstance(problem, AttentionProblem)
    assert problem.loss_name == loss
    np.testing.assert_array_equal(problem.tokens, generate(name).tokens)


@every_generator
def test_unknown_loss_is_refused(name):
    with pytest.raises(ProblemError, match="loss is 'hinge': give one of logistic"):
        generate(name, loss="hinge")


@seeded_generator
@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (-1, "seed is -1: give an integer from 0 to 18446744073709551615"),
        (2**64, "seed is 18446744073709551616: give an integer from 0 to"),
        (1.5, "seed is 1.5: give a"),
        (None, "seed is None: give an integer"),
    ],
)
def test_wrong_seeds_are_refused(name, seed, message):
    with pytest.raises(ProblemError, match=message):
        generate(name, seed=seed)
