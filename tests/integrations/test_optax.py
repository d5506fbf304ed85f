"""Mirror descent in JAX: the steps of the torch optimizers, and what users of optax expect."""

import numpy as np
import pytest
import torch

import mirrormargin as mm

WHY = "jax and optax are not installed: make test-integrations installs and tests them"
jax = pytest.importorskip("jax", reason=WHY)
optax = pytest.importorskip("optax", reason=WHY)

import jax.numpy as jnp  # noqa: E402

from mirrormargin.integrations.optax import (  # noqa: E402
    mirror_adam,
    mirror_descent,
    scale_by_mirror,
)

EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-7}
EXPONENTS = (1.1, 1.5, 2.0, 3.0)
ADAM = {
    "adam": {},
    "adam, decay": {"weight_decay": 0.1},
    "adam, decay, scale": {"weight_decay": 0.1, "scale": "rms"},
}
DESCENT = {
    "descent, decay": {"weight_decay": 0.1},
    "descent, momentum": {"momentum": 0.9, "scale": 0.3},
    "descent, nesterov, decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "descent, normalized": {"step_rule": "normalized", "momentum": 0.5, "weight_decay": 0.1},
}


@pytest.fixture
def wide():
    """float64 in JAX."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def make_problem(dtype=np.float32):
    """Weights of a small network, none of them tiny, inputs and targets."""
    rng = np.random.default_rng(0)
    weights = {
        name: ((0.2 + 0.8 * rng.random(shape)) * rng.choice([-1, 1], shape)).astype(dtype)
        for name, shape in {"first": (5, 7), "bias": (7,), "second": (7,)}.items()
    }
    return weights, rng.normal(size=(32, 5)).astype(dtype), rng.normal(size=32).astype(dtype)


def find_loss(library, w, x, y):
    hidden = library.tanh(x @ w["first"] + w["bias"])
    return ((hidden @ w["second"] - y) ** 2).mean()


def as_arrays(weights):
    return {name: jnp.asarray(one) for name, one in weights.items()}


def make_step(optimizer, x, y):
    """A compiled step, from weights and state to both."""

    def step(weights, state):
        grads = jax.grad(lambda w: find_loss(jnp, w, x, y))(weights)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state

    return jax.jit(step)


def train(optimizer, num_steps, dtype=np.float32):
    weights, x, y = make_problem(dtype)
    weights, step = as_arrays(weights), make_step(optimizer, x, y)
    state = optimizer.init(weights)
    for _ in range(num_steps):
        weights, state = step(weights, state)
    return {name: np.asarray(one) for name, one in weights.items()}


def train_torch(make_optimizer, num_steps, dtype=np.float32):
    weights, x, y = make_problem(dtype)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in weights.items()}
    optimizer = make_optimizer(params)
    for _ in range(num_steps):
        optimizer.zero_grad()
        find_loss(torch, params, x, y).backward()
        optimizer.step()
    return {name: param.detach().numpy() for name, param in params.items()}


def compare(ours, others, tolerance):
    assert ours.keys() == others.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], others[name], rtol=0, atol=tolerance, err_msg=name)


def build(name, p):
    """The transformation of this name, and its twin for torch."""
    if name in ADAM:
        options = ADAM[name]
        twin = lambda params: mm.MirrorAdam([*params.values()], 1e-2, p, **options)  # noqa: E731
        return mirror_adam(1e-2, p, **options), twin
    # Steps of one length circle around the minimum, and would enlarge every rounding.
    options, lr = DESCENT[name], 1e-3 if name == "descent, normalized" else 1e-2
    twin = lambda params: mm.MirrorDescent([*params.values()], lr, p, **options)  # noqa: E731
    return mirror_descent(lr, p, **options), twin


ALL = [(name, p) for name in (*ADAM, *DESCENT) for p in EXPONENTS]
QUICK = [(name, p) for name, p in ALL if p == 1.1 or name == "descent, decay"]
SLOW = [pytest.param(*one, marks=pytest.mark.slow) for one in ALL if one not in QUICK]


@pytest.mark.parametrize(("name", "p"), [*QUICK, *SLOW])
def test_a_hundred_steps_are_those_of_torch(wide, name, p):
    ours, twin = build(name, p)
    compare(train(ours, 100, np.float64), train_torch(twin, 100, np.float64), 1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize(
    # optax computes Adam's 1 - b2^t in float32, which costs the first steps some digits.
    ("name", "tolerance"), [("adam, decay", 3e-4), ("descent, decay", 3e-5)]
)  # fmt: skip
def test_a_hundred_steps_in_float32_are_those_of_torch_up_to_rounding(name, tolerance, p):
    ours, twin = build(name, p)
    compare(train(ours, 100), train_torch(twin, 100), tolerance)


def test_p2_is_adamw_of_optax_to_the_bit_and_keeps_no_dual():
    weights = as_arrays(make_problem()[0])
    ours, theirs = mirror_adam(1e-2, 2.0, weight_decay=0.1), optax.adamw(1e-2, weight_decay=0.1)
    state, other = ours.init(weights), theirs.init(weights)
    assert not jax.tree.leaves(state.dual)
    updates, _ = ours.update(weights, state, weights)
    others, _ = theirs.update(weights, other, weights)
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, updates, others)))


def to_primal(u, p):
    return np.sign(u) * np.abs(u.astype(np.float64)) ** (1 / (p - 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("p", [1.1, 3.0])
def test_after_each_step_weights_are_the_image_of_u_up_to_one_rounding(p, dtype):
    """``w + (w' - w)`` is rounded in units of the larger of both, and next time not at all."""
    weights, x, y = make_problem()
    weights = jax.tree.map(lambda w: jnp.asarray(w, dtype), weights)
    optimizer = mirror_adam(0.02, p)
    step, state = make_step(optimizer, x, y), optimizer.init(weights)
    for _ in range(100):
        before = jax.tree.map(lambda w: np.abs(np.asarray(w, np.float64)), weights)
        weights, state = step(weights, state)
        for name, w in weights.items():
            assert w.dtype == dtype
            assert state.dual[name].dtype == "float32"
            image = to_primal(np.asarray(state.dual[name]), p)
            unit = EPS[dtype] * np.maximum(np.abs(image), before[name])
            unit = unit + 20 * EPS["float32"] * np.abs(image)  # of a power in float32
            assert (np.abs(np.asarray(w, np.float64) - image) <= unit).all()


@pytest.mark.parametrize("p", [1.1, 2.0])
def test_steps_too_short_for_half_precision_add_up(p):
    """Each of them is a hundredth of a unit in the last place."""
    weight = jnp.ones(3, jnp.bfloat16)
    optimizer = mirror_descent(1e-4, p)
    state = optimizer.init(weight)
    update = jax.jit(optimizer.update)
    for _ in range(1000):
        updates, state = update(jnp.ones(3, jnp.bfloat16), state, weight)
        weight = optax.apply_updates(weight, updates)
    assert weight.dtype == jnp.bfloat16
    expected = (1 - 0.1) ** (1 / (p - 1))
    np.testing.assert_allclose(np.asarray(weight, float), expected, rtol=2 * EPS["bfloat16"])


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
def test_without_a_gradient_weights_stay_to_the_bit(p):
    weights = as_arrays(make_problem()[0])
    optimizer = mirror_descent(0.1, p, momentum=0.9)
    nothing = jax.tree.map(jnp.zeros_like, weights)
    updates, _ = optimizer.update(nothing, optimizer.init(weights), weights)
    assert not any(one.any() for one in jax.tree.leaves(updates))


def test_a_gradient_whose_square_overflows_makes_a_step():
    weight = jnp.ones(2)
    optimizer = mirror_adam(0.1, 1.5)
    state = optimizer.init(weight)
    updates, _ = optimizer.update(jnp.array([1e30, -1e30]), state, weight)
    np.testing.assert_allclose(updates, [0.9**2 - 1, 1.1**2 - 1], rtol=1e-4)
    updates, _ = optimizer.update(jnp.array([jnp.inf, 1.0]), state, weight)
    assert jnp.isnan(updates).tolist() == [True, False]


def test_a_schedule_steps_as_rates_that_are_set_by_hand():
    """The second way is that of ``optax.inject_hyperparams``."""
    schedule = optax.linear_schedule(0.02, 0.0, 10)
    expected = train(mirror_adam(schedule, 1.1, weight_decay=0.1), 10)
    inject = optax.inject_hyperparams(mirror_adam, static_args="p")
    optimizer = inject(learning_rate=0.02, p=1.1, weight_decay=0.1)
    weights, x, y = make_problem()
    weights, step = as_arrays(weights), make_step(optimizer, x, y)
    state = optimizer.init(weights)
    for number in range(10):
        state.hyperparams["learning_rate"] = jnp.asarray(schedule(number))
        weights, state = step(weights, state)
    compare(weights, expected, 1e-4)  # 1 - b2 is rounded where b2 is an array


def test_steps_over_several_batches_are_one_step_with_their_mean():
    weights, x, y = make_problem()
    weights = as_arrays(weights)
    optimizer = optax.MultiSteps(mirror_adam(0.02, 1.1), every_k_schedule=2)
    state, ours = optimizer.init(weights), weights
    for half in (slice(0, 16), slice(16, 32)):
        assert ours is weights or jax.tree.all(jax.tree.map(jnp.array_equal, ours, weights))
        ours, state = make_step(optimizer, x[half], y[half])(ours, state)
    compare(ours, train(mirror_adam(0.02, 1.1), 1), 1e-5)


def test_a_chain_makes_the_same_optimizer():
    """What comes before the last transformation of it steps in the dual."""
    chain = optax.chain(
        optax.scale_by_adam(), optax.scale_by_learning_rate(0.02), scale_by_mirror(1.1)
    )
    compare(train(chain, 5), train(mirror_adam(0.02, 1.1), 5), 1e-5)
    clipped = optax.chain(optax.clip_by_global_norm(1e-3), mirror_descent(1.0, 1.1))
    weights = as_arrays(make_problem()[0])
    _, state = clipped.update(weights, clipped.init(weights), weights)
    moves = jax.tree.map(jnp.subtract, state[1].dual, mirror_descent(1.0, 1.1).init(weights).dual)
    np.testing.assert_allclose(optax.tree.norm(moves), 1e-3, rtol=1e-3)


def test_groups_are_those_of_torch(wide):
    """Matrices at p = 1.1 and the rest at p = 2, by ``multi_transform``; ``masked`` leaves it."""
    kinds = {True: mirror_adam(0.01, 1.1), False: mirror_adam(0.01, 2.0)}
    labels = {"first": True, "bias": False, "second": False}
    ours = train(optax.multi_transform(kinds, labels), 20, np.float64)

    def make(params):
        matrices = {"params": [params["first"]], "p": 1.1}
        return mm.MirrorAdam([matrices, {"params": [params["bias"], params["second"]]}], 0.01)

    compare(ours, train_torch(make, 20, np.float64), 1e-12)
    weights = as_arrays(make_problem()[0])
    masked = optax.masked(mirror_adam(0.01, 1.1), labels)
    updates, _ = masked.update(weights, masked.init(weights), weights)
    assert updates["bias"] is weights["bias"]
    assert (updates["first"] != weights["first"]).all()


def test_a_step_compiles_once_and_runs_in_a_scan():
    weights, x, y = make_problem()
    optimizer = mirror_adam(optax.constant_schedule(0.02), 1.1, scale="rms")
    step, first = make_step(optimizer, x, y), as_arrays(weights)
    carry = first, optimizer.init(first)
    for _ in range(3):
        carry = step(*carry)
    assert step._cache_size() == 1
    start = first, optimizer.init(first)
    (last, _), _ = jax.lax.scan(lambda carry, _: (step(*carry), None), start, length=3)
    compare(last, carry[0], 1e-5)


def test_a_tensor_of_zeros_has_the_scale_one():
    state = mirror_adam(0.1, 1.5, scale="rms").init({"zero": jnp.zeros(3), "four": 4 * jnp.ones(2)})
    np.testing.assert_allclose(state.kappas, [4**0.5 / 0.5, 1 / 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mirror_adam(0.1, 1.0), "p is 1.0: give a number above 1"),
        (lambda: mirror_adam(-0.1, 1.5), "learning_rate is -0.1"),
        (lambda: mirror_adam(0.1, 1.5, b1=1.0), "b1 is 1.0"),
        (lambda: mirror_adam(0.1, 1.5, b2=-1), "b2 is -1"),
        (lambda: mirror_adam(0.1, 1.5, eps="no"), "eps is 'no'"),
        (lambda: mirror_adam(0.1, 1.5, weight_decay=-1), "weight_decay is -1"),
        (lambda: mirror_adam(0.1, 1.5, scale="max"), "scale is 'max': give .* \"rms\""),
        (lambda: mirror_descent("fast"), "learning_rate is 'fast'"),
        (lambda: mirror_descent(0.1, step_rule="polyak"), "step_rule is 'polyak'"),
        (lambda: mirror_descent(0.1, momentum=1.0), "momentum is 1.0"),
        (lambda: mirror_descent(0.1, nesterov=True), "nesterov=True needs momentum"),
        (lambda: mirror_descent(0.1, weight_decay=-1), "weight_decay is -1"),
        (lambda: scale_by_mirror(1.5).update(jnp.ones(2), None), "weights are missing"),
        (
            lambda: optax.inject_hyperparams(mirror_adam)(0.1, 1.5).init(jnp.ones(2)),
            'p is an array.*static_args="p"',
        ),
    ],
)
def test_a_wrong_argument_is_refused(make, message):
    with pytest.raises(mm.OptimizerError, match=message):
        make()
