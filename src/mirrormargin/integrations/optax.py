r"""Mirror descent for JAX, as gradient transformations of optax.

Any transformation may run in the dual: what it gets as parameters are the dual variables u, and
what it adds to them is followed by the weights,

    u = kappa sign(w) |w|^(p-1)
    u <- u + (updates of the inner transformation, from the gradients g and u)
    updates = to_primal(u) - w,    to_primal(u) = sign(u) |u / kappa|^(1/(p-1)),

with kappa = 1, or scale^(2-p) / (p-1). Of SGD in the dual that makes :func:`mirror_descent`, and of
AdamW :func:`mirror_adam`: what torch users know as :class:`mirrormargin.MirrorDescent` and
:class:`mirrormargin.MirrorAdam`. At p = 2 they are optax's own.

u is state, in float32 or wider, and what is computed from: that ``w + (w' - w)`` is rounded, and
that weights may be in half precision, adds up to nothing. Whoever changes weights by hand calls
``init`` again, for else the next update takes them back to where u is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from mirrormargin.arguments import check_choice, check_exponent, check_number
from mirrormargin.errors import OptimizerError
from mirrormargin.integrations import miss

try:
    import jax
    import jax.numpy as jnp
    import optax
    from jax.flatten_util import ravel_pytree
except ImportError as error:
    raise miss("optax or jax", "optax") from error

__all__ = ["MirrorState", "k_sparse", "mirror_adam", "mirror_descent", "scale_by_mirror"]

Transformation = optax.GradientTransformationExtraArgs
Schedule = Callable[[Any], Any]

ROUNDING = 1e-9  # 0.29 * 100 is 28.999999999999996


class MirrorState(NamedTuple):
    """The state of :func:`scale_by_mirror`.

    Attributes:
        dual: u of each tensor; ``optax.MaskedNode()`` where it is the weights themselves, at p = 2.
        kappas: The factor of the potential of each tensor, shape (num_tensors,).
        inner: The state of the inner transformation.
    """

    dual: Any
    kappas: Any
    inner: Any


def scale_by_mirror(
    p: float,
    inner: optax.GradientTransformation | None = None,
    *,
    scale: float | Literal["rms"] | None = None,
) -> Transformation:
    """Run a transformation in the dual of the potential (1/p) ||w||_p^p.

    Args:
        p: Exponent, ``1 < p < inf``: sparse weights near 1, optax's own updates at 2.
        inner: What makes updates of u from gradients and u, learning rate included, such as
            ``optax.adamw(1e-3)``. None if the updates that arrive are those of u already, from the
            transformations before this one in an ``optax.chain``.
        scale: Fixed scale of the potential (see :class:`mirrormargin.LpPotential`): a number,
            ``"rms"`` for the root mean square of each initial tensor (1 of one that is zero), or
            None.

    Raises:
        OptimizerError: If an argument cannot be used.

    Example:
        >>> optimizer = scale_by_mirror(3.0, optax.sgd(0.5))
        >>> params = jnp.array([1.0, -2.0])
        >>> updates, _ = optimizer.update(jnp.ones(2), optimizer.init(params), params)
        >>> [round(x, 4) for x in optax.apply_updates(params, updates).tolist()]
        [0.7071, -2.1213]
    """
    p = _check_exponent(p)
    if scale is not None and not (isinstance(scale, str) and scale == "rms"):
        _check(
            "scale", scale, above=0.0, hint='"rms" for that of the initial weights, None for none'
        )
    run = optax.with_extra_args_support(optax.identity() if inner is None else inner)

    def init(params: Any) -> MirrorState:
        kappas = _find_kappas(params, p, scale)
        u = jax.tree.map(lambda w, kappa: _to_dual(w, kappa, p), params, _spread(kappas, params))
        return MirrorState(_keep(u, params, p), kappas, run.init(u))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, MirrorState]:
        _require(params)
        u = _open(state.dual, params, p)
        grads = jax.tree.map(lambda g, own: g.astype(own.dtype), updates, u)
        moves, state_inside = run.update(grads, state.inner, u, **extra)
        moved = jax.tree.map(jnp.add, u, moves)

        def emit(w: Any, old: Any, new: Any, move: Any, kappa: Any) -> Any:
            if not _keeps_dual(w, p):
                return move
            change = _to_primal(new, kappa, p).astype(w.dtype) - w
            return jnp.where(new == old, jnp.zeros_like(w), change)  # leaves such weights as are

        emitted = jax.tree.map(emit, params, u, moved, moves, _spread(state.kappas, params))
        return emitted, MirrorState(_keep(moved, params, p), state.kappas, state_inside)

    return Transformation(init, update)


def mirror_descent(
    learning_rate: float | Schedule,
    p: float = 2.0,
    *,
    step_rule: Literal["constant", "normalized"] = "constant",
    momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    scale: float | Literal["rms"] | None = None,
) -> Transformation:
    """:class:`mirrormargin.MirrorDescent` for JAX; SGD at p = 2.

    Args:
        learning_rate: Step size in the dual, or a schedule.
        p: Exponent, ``1 < p < inf``.
        step_rule: ``"constant"``, or ``"normalized"``: each tensor's gradient is divided by its
            dual norm ||g||_q, q = p / (p - 1).
        momentum: Heavy-ball factor in the dual, below 1; None for none.
        nesterov: Look one momentum step ahead.
        weight_decay: Multiple of u added to the gradient; of normalized steps to the direction,
            after momentum.
        scale: See :func:`scale_by_mirror`.

    Raises:
        OptimizerError: If an argument cannot be used.
    """
    p = _check_exponent(p)
    _check("learning_rate", learning_rate, least=0.0)
    if momentum is not None:
        _check("momentum", momentum, least=0.0, below=1.0, hint="or None")
    _check("weight_decay", weight_decay, least=0.0)
    check_choice("step_rule", step_rule, ("constant", "normalized"), error=OptimizerError)
    if nesterov and momentum is None:
        raise OptimizerError("nesterov=True needs momentum: give a number below 1, such as 0.9")
    average = optax.identity() if momentum is None else optax.trace(momentum, nesterov)
    decay = optax.add_decayed_weights(weight_decay)
    if step_rule == "constant":
        steps = [decay, average]
    else:
        q = p / (p - 1)
        normalize = optax.stateless_with_tree_map(lambda g, _: _normalize(g, q))
        steps = [normalize, average, decay]
    inner = optax.chain(*steps, optax.scale_by_learning_rate(learning_rate))
    return scale_by_mirror(p, inner, scale=scale)


def mirror_adam(
    learning_rate: float | Schedule = 1e-3,
    p: float = 2.0,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    *,
    scale: float | Literal["rms"] | None = None,
) -> Transformation:
    """:class:`mirrormargin.MirrorAdam` for JAX; ``optax.adamw`` at p = 2.

    Tensors that start at zero hardly move near p = 1: give them, like biases, norms and
    embeddings, p = 2 by ``optax.multi_transform``.

    Args:
        learning_rate: Step size in the dual, or a schedule.
        p: Exponent, ``1 < p < inf``.
        b1: Decay rate of the average of g.
        b2: Decay rate of the average of g^2.
        eps: Added to the denominator.
        weight_decay: Decoupled, on the dual: ``u <- (1 - learning_rate weight_decay) u``.
        scale: See :func:`scale_by_mirror`.

    Raises:
        OptimizerError: If an argument cannot be used.
    """
    _check("learning_rate", learning_rate, least=0.0)
    _check("b1", b1, least=0.0, below=1.0)
    _check("b2", b2, least=0.0, below=1.0)
    _check("eps", eps, least=0.0)
    _check("weight_decay", weight_decay, least=0.0)
    limit = optax.stateless_with_tree_map(lambda g, _: _limit(g))
    adam = optax.adamw(learning_rate, b1, b2, eps, weight_decay=weight_decay)
    return scale_by_mirror(p, optax.chain(limit, adam), scale=scale)


class KSparseState(NamedTuple):
    """How many updates :func:`k_sparse` has made."""

    count: Any


def k_sparse(
    share: float | Schedule, *, scope: Literal["global", "tensor"] = "global"
) -> Transformation:
    """Keep the largest weights: the last transformation of a chain, after the learning rate.

    Its updates take exactly ``floor(share N)`` of N weights to 0, those that would be the smallest
    after the updates that arrive; of equal ones the last are removed. A removed weight may return:
    its u, or what else the chain keeps of it, goes on behind it.

    Args:
        share: Of the weights that are zero, or a schedule of it. The course of
            :class:`mirrormargin.SparsitySchedule` is ``optax.polynomial_schedule(0.0, share, 3,
            transition_steps=...)``.
        scope: ``"global"`` ranks all tensors together, ``"tensor"`` each by itself. For some
            tensors alone use ``optax.masked``.

    Raises:
        OptimizerError: If an argument cannot be used.

    Example:
        >>> optimizer = optax.chain(optax.sgd(0.1), k_sparse(0.5))
        >>> params = jnp.array([3.0, -0.1, 2.0, 0.2])
        >>> updates, _ = optimizer.update(jnp.zeros(4), optimizer.init(params), params)
        >>> optax.apply_updates(params, updates).tolist()
        [3.0, 0.0, 2.0, 0.0]
    """
    _check("share", share, least=0.0, below=1.0)
    check_choice("scope", scope, ("global", "tensor"), error=OptimizerError)

    def init(params: Any) -> KSparseState:
        del params
        return KSparseState(jnp.zeros([], jnp.int32))

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, KSparseState]:
        del extra
        _require(params)
        now = share(state.count) if callable(share) else share
        after = optax.apply_updates(params, updates)
        if scope == "global":
            kept = _mark_largest(after, now)
        else:
            kept = jax.tree.map(lambda w: _mark_largest(w, now), after)
        emitted = jax.tree.map(lambda w, x, own: jnp.where(own, x, -w), params, updates, kept)
        return emitted, KSparseState(state.count + 1)

    return Transformation(init, update)


def _mark_largest(tree: Any, share: Any) -> Any:
    """False for the ``floor(share N)`` smallest entries; of equal ones the first are kept."""
    sizes, _ = ravel_pytree(jax.tree.map(jnp.abs, tree))
    are_nan, unravel = ravel_pytree(jax.tree.map(jnp.isnan, tree))
    sizes = jnp.where(are_nan, jnp.inf, sizes)
    if isinstance(share, jax.Array):  # rounded to its dtype, by which it may be just too small
        num_removed = jnp.floor(sizes.size * share * (1 + jnp.finfo(share.dtype).eps))
    else:
        num_removed = math.floor(sizes.size * share + ROUNDING)
    order = jnp.argsort(-sizes, stable=True)
    ranks = jnp.arange(sizes.size)
    return unravel(jnp.zeros(sizes.shape, bool).at[order].set(ranks < sizes.size - num_removed))


def _to_dual(w: Any, kappa: Any, p: float) -> Any:
    """u in float32 or wider."""
    wide = w.astype(_widen(w))
    return kappa.astype(wide.dtype) * jnp.sign(wide) * jnp.abs(wide) ** (p - 1)


def _to_primal(u: Any, kappa: Any, p: float) -> Any:
    return jnp.sign(u) * (jnp.abs(u) / kappa.astype(u.dtype)) ** (1 / (p - 1))


def _widen(w: Any) -> Any:
    return jnp.promote_types(w.dtype, jnp.float32)


def _keeps_dual(w: Any, p: float) -> bool:
    """Whether u is state: not where it equals the weights, unless they are in half precision."""
    return p != 2 or w.dtype != _widen(w)


def _open(dual: Any, params: Any, p: float) -> Any:
    """u of each tensor, from the state."""
    return jax.tree.map(lambda w, u: u if _keeps_dual(w, p) else w, params, dual)


def _keep(u: Any, params: Any, p: float) -> Any:
    """What becomes state of u."""

    def keep(w: Any, own: Any) -> Any:
        return own if _keeps_dual(w, p) else optax.MaskedNode()

    return jax.tree.map(keep, params, u)


def _find_kappas(params: Any, p: float, scale: Any) -> Any:
    """The factor of the potential of each tensor, shape (num_tensors,)."""

    def find(w: Any) -> Any:
        wide = w.astype(_widen(w))
        if scale is None:
            return jnp.ones([], wide.dtype)
        c = jnp.sqrt(jnp.mean(wide**2)) if isinstance(scale, str) else jnp.asarray(scale)
        c = jnp.where(c > 0, c, 1.0).astype(wide.dtype)
        return jnp.exp((2 - p) * jnp.log(c) - math.log(p - 1))

    return jnp.array([find(w) for w in jax.tree.leaves(params)])


def _spread(kappas: Any, params: Any) -> Any:
    return jax.tree.unflatten(jax.tree.structure(params), list(kappas))


def _normalize(g: Any, q: float) -> Any:
    """g / ||g||_q, without overflow on the way; 0 stays 0."""
    largest = jnp.max(jnp.abs(g), initial=0.0)
    unit = jnp.where(largest == 0, 1.0, largest)
    norm = unit * jnp.sum((jnp.abs(g) / unit) ** q) ** (1 / q)
    return g / jnp.where(largest == 0, 1.0, norm)


def _limit(g: Any) -> Any:
    """Finite gradients clipped to what Adam's average of squares can hold."""
    bound = 2.0**511 if g.dtype == jnp.float64 else 2.0**63
    return jnp.where(jnp.isinf(g), g, jnp.clip(g, -bound, bound))


def _check_exponent(p: Any) -> float:
    if isinstance(p, jax.Array):
        raise OptimizerError(
            "p is an array, and the state belongs to one p: give a number, and to"
            ' optax.inject_hyperparams static_args="p"'
        )
    return check_exponent(p, error=OptimizerError)


def _check(name: str, value: Any, **limits: Any) -> None:
    """Raise unless a number is within limits; schedules and arrays of JAX are not looked into."""
    if not callable(value) and not isinstance(value, jax.Array):
        check_number(name, value, error=OptimizerError, **limits)


def _require(params: Any) -> None:
    if params is None:
        raise OptimizerError(
            "the weights are missing: call update(gradients, state, params), and give params to the"
            " transformations around it"
        )
