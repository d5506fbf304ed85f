"""Exact sparsity in JAX: how many weights are zero, and which."""

import math

import numpy as np
import pytest
import torch

import mirrormargin as mm

WHY = "jax and optax are not installed: make test-integrations installs and tests them"
jax = pytest.importorskip("jax", reason=WHY)
optax = pytest.importorskip("optax", reason=WHY)

import jax.numpy as jnp  # noqa: E402

from mirrormargin.integrations.optax import k_sparse, mirror_adam  # noqa: E402


def make_weights(dtype="float32"):
    rng = np.random.default_rng(0)
    shapes = {"a": (9, 7), "b": (7,), "c": (), "d": (3, 2, 5)}
    return {name: jnp.asarray(rng.normal(size=shape), dtype) for name, shape in shapes.items()}


def apply(optimizer, weights, grads, state=None):
    state = optimizer.init(weights) if state is None else state
    updates, state = jax.jit(optimizer.update)(grads, state, weights)
    return optax.apply_updates(weights, updates), state


def flatten(weights):
    return np.concatenate([np.ravel(np.asarray(w, np.float64)) for w in jax.tree.leaves(weights)])


def remove_literally(flat, share):
    """One by one: the smallest, of equal ones the last."""
    flat = flat.copy()
    order = sorted(range(len(flat)), key=lambda k: (abs(flat[k]), -k))
    flat[order[: math.floor(share * len(flat) + 1e-9)]] = 0
    return flat


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 0.95, 0.999])
def test_exactly_the_smallest_weights_are_zero(share, dtype):
    weights, grads = make_weights(dtype), make_weights(dtype)
    plain, _ = apply(optax.sgd(0.1), weights, grads)
    sparse, _ = apply(optax.chain(optax.sgd(0.1), k_sparse(share)), weights, grads)
    assert all(w.dtype == dtype for w in jax.tree.leaves(sparse))
    np.testing.assert_array_equal(flatten(sparse), remove_literally(flatten(plain), share))
    assert (flatten(sparse) == 0).sum() == math.floor(share * 101 + 1e-9)


def test_of_equal_weights_the_last_are_removed():
    weights = {"a": jnp.array([1.0, -1.0]), "b": jnp.array([1.0, 2.0, -1.0])}
    nothing = jax.tree.map(jnp.zeros_like, weights)
    sparse, _ = apply(k_sparse(0.4), weights, nothing)
    assert flatten(sparse).tolist() == [1, -1, 0, 2, 0]


def test_each_tensor_by_itself_and_some_tensors_alone():
    weights = make_weights()
    nothing = jax.tree.map(jnp.zeros_like, weights)
    sparse, _ = apply(k_sparse(0.5, scope="tensor"), weights, nothing)
    assert {name: int((w == 0).sum()) for name, w in sparse.items()} == {
        "a": 31, "b": 3, "c": 0, "d": 15,
    }  # fmt: skip
    are_matrices = jax.tree.map(lambda w: w.ndim >= 2, weights)
    sparse, _ = apply(optax.masked(k_sparse(0.5), are_matrices), weights, nothing)
    assert sum(int((sparse[name] == 0).sum()) for name in "ad") == (63 + 30) // 2
    assert (sparse["b"] == weights["b"]).all()


def test_a_schedule_raises_the_share():
    """Along the course of a SparsitySchedule."""
    weights = make_weights()
    optimizer = k_sparse(optax.polynomial_schedule(0.0, 0.9, 3, transition_steps=10))
    state, counts = optimizer.init(weights), []
    for _ in range(12):
        nothing = jax.tree.map(jnp.zeros_like, weights)
        weights, state = apply(optimizer, weights, nothing, state)
        counts.append(int((flatten(weights) == 0).sum()))
    weight = torch.nn.Parameter(torch.ones(2, 2))
    course = mm.SparsitySchedule(mm.MirrorAdam([weight]), 0.9, num_steps=10, end=1.0).share_at
    assert counts == [math.floor(101 * course(step) + 1e-9) for step in range(12)]


def test_a_share_of_float32_is_not_one_weight_short():
    """0.29 * 100 is 28.999999 in float32."""
    weights = jnp.arange(1.0, 101.0)
    optimizer = optax.inject_hyperparams(k_sparse)(share=0.29)
    sparse, _ = apply(optimizer, weights, jnp.zeros(100))
    assert int((sparse == 0).sum()) == 29


def test_a_hundred_steps_are_those_of_torch_and_removed_weights_return():
    """There the schedule keeps what is removed, and ranks after every step."""
    rng = np.random.default_rng(0)
    start, grads = rng.normal(size=(6, 5)), rng.normal(size=(100, 6, 5))
    param = torch.nn.Parameter(torch.from_numpy(start.copy()))
    twin = mm.MirrorAdam([param], 0.05, 1.5)
    schedule = mm.SparsitySchedule(twin, 0.6, num_steps=100, removed="kept")
    optimizer = optax.chain(mirror_adam(0.05, 1.5), k_sparse(0.6))
    jax.config.update("jax_enable_x64", True)
    try:
        weight, ever = jnp.asarray(start), set()
        state, update = optimizer.init(weight), jax.jit(optimizer.update)
        for grad in grads:
            param.grad = torch.from_numpy(grad)
            twin.step()
            schedule.rank(0.6)
            updates, state = update(jnp.asarray(grad), state, weight)
            weight = optax.apply_updates(weight, updates)
            np.testing.assert_allclose(weight, param.detach().numpy(), rtol=0, atol=1e-12)
            assert int((weight == 0).sum()) == 18
            ever |= set(np.flatnonzero(weight == 0).tolist())
        assert len(ever) > 18  # some have returned
    finally:
        jax.config.update("jax_enable_x64", False)


def test_nan_is_not_hidden():
    sparse, _ = apply(k_sparse(0.5), jnp.array([1.0, jnp.nan, 2.0, 3.0]), jnp.zeros(4))
    assert jnp.isnan(sparse).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: k_sparse(1.0), "share is 1.0: give a number of at least 0 and below 1"),
        (lambda: k_sparse(0.5, scope="all"), "scope is 'all': give one of global, tensor"),
        (lambda: k_sparse(0.5).update(jnp.ones(2), None), "weights are missing"),
    ],
)
def test_a_wrong_argument_is_refused(make, message):
    with pytest.raises(mm.OptimizerError, match=message):
        make()
