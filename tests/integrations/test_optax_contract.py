"""What optax asks of every optimizer that is contributed to it, asked of ours."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

WHY = "jax and optax are not installed: make test-integrations installs and tests them"
jax = pytest.importorskip("jax", reason=WHY)
optax = pytest.importorskip("optax", reason=WHY)

import jax.numpy as jnp  # noqa: E402

from mirrormargin.integrations.optax import (  # noqa: E402
    k_sparse,
    mirror_adam,
    mirror_descent,
    scale_by_mirror,
)

ALL = {
    "descent": (mirror_descent, {"learning_rate": 5e-4, "p": 1.5}),
    "momentum": (mirror_descent, {"learning_rate": 5e-5, "p": 2.0, "momentum": 0.9}),
    "normalized": (mirror_descent, {"learning_rate": 1e-3, "p": 1.5, "step_rule": "normalized"}),
    "adam": (mirror_adam, {"learning_rate": 1e-3, "p": 1.1}),
    "decay": (mirror_adam, {"learning_rate": 1e-2, "p": 3.0, "weight_decay": 1e-4, "scale": "rms"}),
    "adamw": (mirror_adam, {"learning_rate": 1e-2, "p": 2.0}),
}
every_optimizer = pytest.mark.parametrize("name", ALL)


def build(name):
    make, options = ALL[name]
    return make(**options)


def parabola(dtype="float32"):
    goal = jnp.array([1.0, -1.0, 1.0], dtype)
    start = jnp.array([-1.0, 10.0, 1.0], dtype)
    return start, goal, lambda w: jnp.sum((w - goal) ** 2)


def rosenbrock():
    """Both weights start at zero."""
    return jnp.zeros(2), jnp.ones(2), lambda w: (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2


def several_tensors():
    goal = (jnp.array([1.0, -1.0, 2.0]), jnp.array([[1.0, 0.2], [-1.0, 1.0]]))
    start = jax.tree.map(jnp.ones_like, goal)

    def measure(w):
        return sum(jnp.sum((a - b) ** 2) for a, b in zip(w, goal, strict=True))

    return start, goal, measure


def make_step(optimizer, measure, **extra):
    @jax.jit
    def step(weights, state):
        updates, state = optimizer.update(jax.grad(measure)(weights), state, weights, **extra)
        return optax.apply_updates(weights, updates), state

    return step


def find_largest_difference(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), a, b)))


@pytest.mark.parametrize("target", [parabola, rosenbrock, several_tensors])
@every_optimizer
def test_it_gets_to_the_minimum(name, target):
    start, goal, measure = target()
    optimizer = build(name)
    step = make_step(optimizer, measure)
    state = optax.tree.map_params(optimizer, lambda w: w, optimizer.init(start))
    carry, _ = jax.lax.scan(lambda carry, _: (step(*carry), None), (start, state), length=30_000)
    assert find_largest_difference(carry[0], goal) < 0.03


@every_optimizer
def test_arguments_that_nobody_expects_are_let_pass_and_nothing_compiles_twice(name):
    start, _, measure = parabola()
    optimizer = optax.chain(build(name), k_sparse(0.3))
    step = make_step(optimizer, measure, value=1.0, nobody_expects=2)
    carry = step(*step(start, optimizer.init(start)))
    assert np.isfinite(carry[0]).all()
    assert step._cache_size() == 1


@every_optimizer
def test_numbers_can_be_injected(name):
    """All of them but p, which the state belongs to."""
    make, options = ALL[name]
    static = tuple({"p", "step_rule"} & options.keys())
    plain, injected = make(**options), optax.inject_hyperparams(make, static)(**options)
    weights = [-jnp.ones((2, 3)), 2 * jnp.ones((2, 5, 2))]
    grads = [jnp.ones((2, 3)), -jnp.ones((2, 5, 2))]
    found, state = jax.jit(injected.update)(grads, jax.jit(injected.init)(weights), weights)
    expected, other = jax.jit(plain.update)(grads, jax.jit(plain.init)(weights), weights)
    assert find_largest_difference(found, expected) < 1e-5
    assert find_largest_difference(state.inner_state, other) < 1e-5
    assert "learning_rate" in state.hyperparams


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@every_optimizer
def test_dtypes_of_weights_updates_and_state_stay(name, dtype):
    """Both branches of a condition have to agree in every one of them."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    try:
        start, _, measure = parabola(dtype)
        make, options = ALL[name]
        optimizer = make(**{**options, "learning_rate": 0.1})

        @jax.jit
        def step(weights, state, is_due):
            grads = jax.grad(measure)(weights)
            return jax.lax.cond(
                is_due,
                lambda: optimizer.update(grads, state, weights),
                lambda: (jnp.zeros_like(weights), state),
            )

        updates, state = step(start, optimizer.init(start), True)
        assert updates.dtype == dtype
        assert jnp.any(updates != 0)
        assert jax.eval_shape(lambda: state) == jax.eval_shape(optimizer.init, start)
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@every_optimizer
def test_gradients_are_accumulated_into_one_step_with_their_mean(name, dtype):
    optimizer = optax.MultiSteps(build(name), every_k_schedule=2)
    weights = jnp.array([1.0, 2.0], dtype)
    grads = [jnp.array([1.0, 4.0], dtype), jnp.array([3.0, 0.0], dtype)]
    update = jax.jit(optimizer.update)
    updates, state = update(grads[0], optimizer.init(weights), weights)
    assert not updates.any()
    found, _ = update(grads[1], state, weights)
    alone = build(name)
    expected, _ = jax.jit(alone.update)((grads[0] + grads[1]) / 2, alone.init(weights), weights)
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found, float), np.asarray(expected, float))


@every_optimizer
def test_a_schedule_may_take_the_place_of_the_learning_rate(name):
    make, options = ALL[name]
    start, _, measure = parabola()
    ended = []
    for rate in (1e-3, optax.constant_schedule(1e-3)):
        optimizer = make(**{**options, "learning_rate": rate})
        step, carry = make_step(optimizer, measure), (start, optimizer.init(start))
        for _ in range(10):
            carry = step(*carry)
        ended.append(carry[0])
    assert find_largest_difference(*ended) < 1e-5


def test_extra_arguments_reach_the_inner_transformation():
    def update(updates, state, params=None, *, value, **extra):
        return jax.tree.map(lambda g: -value * g, updates), state

    inner = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    optimizer = optax.chain(scale_by_mirror(3.0, inner), optax.identity())
    weight = jnp.ones(2)
    updates, _ = optimizer.update(jnp.ones(2), optimizer.init(weight), weight, value=0.19)
    np.testing.assert_allclose(updates, -0.1, rtol=1e-5)


def test_the_state_can_be_mapped_like_the_weights():
    """As those do who lay it out over devices."""
    optimizer = mirror_adam(0.02, 1.1, scale="rms")
    state = optimizer.init({"w": jnp.ones((3, 2)), "b": jnp.ones(2)})
    marked = optax.tree.map_params(
        optimizer, lambda _: "like the weights", state, transform_non_params=lambda _: "not"
    )
    assert set(jax.tree.leaves(marked.dual)) == {"like the weights"}
    assert set(jax.tree.leaves(marked.inner)) == {"like the weights", "not"}
    assert marked.kappas == "not"


def test_sharded_weights_are_stepped_as_whole_ones():
    script = Path(__file__).with_name("sharded_optax.py")
    flags = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "devices"]
