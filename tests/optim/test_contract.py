"""Every optimizer variant keeps every promise: exponent x step rule x extras x path x dtype.

The default run tries a part of the full product, the slow tests more of it, see covering.py.
"""

from __future__ import annotations

import copy
import pickle
from types import MappingProxyType

import pytest
import torch
from catalogue import (
    ADAM_EXTRAS,
    CONSTANT_EXTRAS,
    DESCENT_EXTRAS,
    DESCENT_RULES,
    EXPONENTS,
    PATHS,
    bits,
    make_params,
    set_gradients,
)
from covering import cover

from mirrormargin import ElasticNetPotential, HypentropyPotential, MirrorAdam, MirrorDescent
from mirrormargin.optim.dual_state import WITHOUT_DUAL
from mirrormargin.optim.reference import ReferenceMirrorAdam, ReferenceMirrorDescent

HALF = (torch.bfloat16, torch.float16)
DTYPES = {"fused": (torch.float32, *HALF), "plain": (torch.float32, torch.float64, *HALF)}
DTYPES["foreach"] = DTYPES["plain"]


def _lr(p: float, rule: str, options: dict = MappingProxyType({})) -> float:
    usual = {"polyak": 0.5, "adam": 0.01}.get(rule, 0.02)
    if not options.get("center") or rule == "polyak":
        return usual
    # Here u starts at 0, where near p = 1 the map to w is flat.
    flat = 30 if p < 1.2 else 10 if p < 1.4 else 1
    return flat * usual * {"adam": 1, "constant": 3}.get(rule, 0.3)


def _descents():
    for p in EXPONENTS:
        for rule, rule_options in DESCENT_RULES.items():
            extras = {**DESCENT_EXTRAS, **CONSTANT_EXTRAS} if rule == "constant" else DESCENT_EXTRAS
            for extra, options in extras.items():
                yield pytest.param(
                    MirrorDescent,
                    ReferenceMirrorDescent,
                    {"lr": _lr(p, rule, options), "p": p, **rule_options, **options},
                    id=f"descent-{p}-{rule}-{extra}",
                )


def _adams():
    for p in EXPONENTS:
        for extra, options in ADAM_EXTRAS.items():
            yield pytest.param(
                MirrorAdam,
                ReferenceMirrorAdam,
                {"lr": _lr(p, "adam", options), "p": p, **options},
                id=f"adam-{p}-{extra}",
            )


VARIANTS = [*_descents(), *_adams()]
CASES = [
    pytest.param(*variant.values, path, dtype, id=f"{variant.id}-{path}-{str(dtype)[6:]}")
    for variant in VARIANTS
    for path in PATHS
    for dtype in DTYPES[path]
    if "narrow" not in variant.id or (path != "fused" and dtype != torch.float64)
]
# Contracts about plumbing need no full product, and are tried on a covering part of these alone.
FEW = [
    case
    for case in CASES
    if any(f"-{p}-" in case.id for p in (1.1, 1.5, 2.0, 4.0))
    and any(kind in case.id for kind in ("adam", "bare", "momentum-decay", "momentum-narrow"))
]
EXTRAS = (
    "momentum",
    "nesterov",
    "weight_decay",
    "amsgrad",
    "scale",
    "caution",
    "center",
    "clip",
    "state_dtype",
)


def _cover(cases, strength, rest=True):
    def list_options(kind, reference, options, path, dtype):
        rule = (kind, options.get("step_rule"), options.get("norm_over"))
        return rule, tuple(map(options.get, EXTRAS)), options["p"], path, dtype

    # Every kernel is compiled once for each half precision: the default run compiles for one.
    late = [case for case in cases if case.id.endswith("fused-float16")]
    early = [case for case in cases if case not in late]
    chosen = cover(early, [list_options(*case.values) for case in early], strength)
    if not rest:
        return [case for case in chosen if not case.marks]
    return [*chosen, *(pytest.param(*c.values, id=c.id, marks=pytest.mark.slow) for c in late)]


PLUMBING = _cover(FEW, 2, rest=False)


def _step(optimizer, params, k):
    loss = set_gradients(params, k)
    if isinstance(optimizer, MirrorDescent):
        optimizer.step(loss=loss)
    else:
        optimizer.step()


def _make(kind, options, path, dtype, seed=0):
    params = make_params(dtype, seed)
    return params, kind(params, **options, **PATHS[path])


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), _cover(CASES, 3))
def test_equals_reference(kind, reference, options, path, dtype):
    is_narrow = "state_dtype" in options
    if (dtype in HALF or is_narrow) and "center" not in options:  # steps that rounding cannot hide
        options = {**options, "lr": min(10 * options["lr"], 1.0)}
    params, optimizer = _make(kind, options, path, dtype)
    twins = make_params(dtype)
    twin = reference(twins, **options)
    start = [param.detach().clone() for param in params]
    tolerances = {torch.float32: 3e-5, torch.float64: 1e-11}
    tolerance = tolerances.get(dtype, 2 * torch.finfo(dtype).eps)
    if is_narrow and options["p"] not in WITHOUT_DUAL:
        tolerance = 2 * torch.finfo(torch.bfloat16).eps
    for k in range(4):
        loss = set_gradients(params, k)
        for mine, other in zip(params, twins, strict=True):
            other.grad = mine.grad.clone()
        if kind is MirrorDescent:
            optimizer.step(loss=loss)
            twin.step(loss=loss)
        else:
            optimizer.step()
            twin.step()
        for i, (mine, other) in enumerate(zip(params, twins, strict=True)):
            # Near 0 one of w and u = |w|^(p-1) is ill-conditioned in the other: either may agree.
            p = options["p"]
            w = torch.isclose(mine.double(), other.double(), rtol=tolerance, atol=tolerance / 10)
            dual = [x.detach().double().abs().pow(p - 1).copysign(x) for x in (mine, other)]
            if "center" in options:
                dual = [optimizer.state[mine]["dual"].double(), twin.u[i] / twin.kappa]
            u = torch.isclose(*dual, rtol=tolerance, atol=tolerance / 10)
            assert bool((w | u).all())
        if dtype in HALF or is_narrow:  # both round; compare each step from the same start
            for i, mine in enumerate(params):
                twins[i].data.copy_(mine.data)
                twin.w[i] = mine.detach().double()
                _copy_state(twin, i, optimizer.state[mine])
    if "center" in options and dtype in HALF:  # where u is far from what rounding shows in w
        assert any(bool(optimizer.state[param]["dual"].any()) for param in params)
    else:
        assert any(not torch.equal(a, b) for a, b in zip(params, start, strict=True))


def _copy_state(twin, i, state):
    dual = state.get("dual")
    twin.u[i] = twin.to_dual(twin.w[i]) if dual is None else dual.double() * twin.kappa
    names = {"buffers": "momentum_buffer", "m": "exp_avg", "v": "exp_avg_sq"}
    names["v_max"] = "max_exp_avg_sq"
    for name, key in names.items():
        if key in state:
            getattr(twin, name)[i] = state[key].double()


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), _cover(CASES, 2))
def test_zero_lr_and_zero_gradients_change_no_bit(kind, reference, options, path, dtype):
    params, optimizer = _make(kind, {**options, "lr": 0.0}, path, dtype)
    before = bits(params)
    for k in range(3):
        _step(optimizer, params, k)
    assert bits(params) == before
    if options.get("weight_decay") or options.get("momentum"):
        return
    params, optimizer = _make(kind, options, path, dtype)
    for k in range(5):
        for param in params:
            param.grad = torch.zeros_like(param)
        if k == 2:
            params[0].grad[3] = 0.5  # one row moves, the others stay
        optimizer.step(loss=1.0) if kind is MirrorDescent else optimizer.step()
        if k == 1:
            assert bits(params) == before
    assert bits(params[1:]) == before[1:]
    untouched = torch.arange(len(params[0])) != 3
    assert torch.equal(params[0][untouched], make_params(dtype)[0][untouched])
    if "center" in options:  # a first step from u = 0 may be too short to be seen in w
        assert bool(optimizer.state[params[0]]["dual"][3].all())
    else:
        assert not torch.equal(params[0][3], make_params(dtype)[0][3])


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), PLUMBING)
def test_state_dict_round_trip_gives_the_same_next_steps(kind, reference, options, path, dtype):
    params, optimizer = _make(kind, options, path, dtype)
    for k in range(3):
        _step(optimizer, params, k)
    saved = copy.deepcopy(optimizer.state_dict())
    others = make_params(dtype, seed=5)
    resumed = kind(others, **options, **PATHS[path])
    _step(resumed, others, 0)
    with torch.no_grad():
        for mine, other in zip(params, others, strict=True):
            other.copy_(mine)
    resumed.load_state_dict(saved)
    for values in resumed.state.values():
        for key, value in values.items():
            if key == "center":
                assert value.dtype == dtype
            elif isinstance(value, torch.Tensor) and key != "step":
                wide = torch.promote_types(dtype, torch.float32)
                assert value.dtype == options.get("state_dtype", wide), key
    for k in range(3, 6):
        _step(optimizer, params, k)
        _step(resumed, others, k)
    assert bits(params) == bits(others)


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), PLUMBING)
def test_deepcopy_and_pickle_continue_alike(kind, reference, options, path, dtype):
    params, optimizer = _make(kind, options, path, dtype)
    _step(optimizer, params, 0)
    clones = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    _step(optimizer, params, 1)
    for clone in clones:
        others = clone.param_groups[0]["params"]
        _step(clone, others, 1)
        assert bits(params) == bits(others)


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), PLUMBING)
def test_closure_is_called_once_with_gradients_enabled(kind, reference, options, path, dtype):
    params, optimizer = _make(kind, options, path, dtype)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = sum((param.float() ** 2).sum() for param in params)
        loss.backward()
        return loss

    before = bits(params)
    assert float(optimizer.step(closure).detach()) > 0
    assert calls == [True]
    if dtype not in HALF and not options.get("center"):  # there a short step may round to none
        assert bits(params) != before


@pytest.mark.parametrize(("kind", "reference", "options", "path", "dtype"), PLUMBING)
def test_odd_parameters_are_handled(kind, reference, options, path, dtype):
    scalar = torch.nn.Parameter(torch.tensor(0.7, dtype=dtype))
    empty = torch.nn.Parameter(torch.empty(0, 3, dtype=dtype))
    without = torch.nn.Parameter(torch.ones(3, dtype=dtype))
    strided = torch.nn.Parameter(torch.full((4, 6), 0.5, dtype=dtype))
    twin = torch.nn.Parameter(torch.full((4, 6), 0.5, dtype=dtype))
    optimizer = kind([scalar, empty, without, strided, twin], **options, **PATHS[path])
    scalar.grad = torch.tensor(0.1, dtype=dtype)
    empty.grad = torch.empty(0, 3, dtype=dtype)
    gradient = torch.arange(24, dtype=dtype).reshape(6, 4) / 100 + 0.01
    strided.grad, twin.grad = gradient.t(), gradient.t().contiguous()
    optimizer.step(loss=1.0) if kind is MirrorDescent else optimizer.step()
    assert torch.equal(without, torch.ones(3, dtype=dtype))
    if "state_dtype" not in options:  # random bits depend on the number of the parameter
        assert torch.equal(strided, twin)
    if dtype in HALF or options.keys() & {"state_dtype", "center"}:
        return  # there a short step may round to none
    sign = -1 if options.get("maximize") else 1
    assert sign * float(scalar.detach()) < sign * 0.7
    assert bool((sign * strided < sign * 0.5).all())


# Steps of the other rules depend on what else is in the optimizer.
# Rounding at random depends on the number of the parameter.
DEPENDENT = ("polyak", "normalized-group", "narrow")
SEPARATE = [case for case in FEW if not any(word in case.id for word in DEPENDENT)]


@pytest.mark.parametrize(
    ("kind", "reference", "options", "path", "dtype"), _cover(SEPARATE, 2, rest=False)
)
def test_groups_have_their_own_exponents(kind, reference, options, path, dtype):
    params, optimizer = _make(kind, options, path, dtype)
    loss = set_gradients(params, 0)
    exponents = (1.2, 2.0, 3.0, 1.5, 6.0)
    mixed = make_params(dtype)
    groups = [{"params": [w], "p": p} for w, p in zip(mixed, exponents, strict=True)]
    combined = kind(groups, **options, **PATHS[path])
    alone = make_params(dtype)
    singles = [
        kind([w], **{**options, "p": p}, **PATHS[path])
        for w, p in zip(alone, exponents, strict=True)
    ]
    for targets in (mixed, alone):
        for source, target in zip(params, targets, strict=True):
            target.grad = source.grad.clone()
    for single in (combined, *singles):
        single.step(loss=loss) if kind is MirrorDescent else single.step()
    assert bits(mixed) == bits(alone)


EXACT = [(path, dtype) for path in PATHS for dtype in DTYPES[path] if dtype not in HALF]


@pytest.mark.parametrize(("path", "dtype"), EXACT)
@pytest.mark.parametrize("extra", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("maximize", [False, True])
def test_p2_is_sgd(path, extra, decay, maximize, dtype):
    params, twins = make_params(dtype), make_params(dtype)
    options = {**extra, "weight_decay": decay, "maximize": maximize}
    optimizer = MirrorDescent(params, lr=0.05, p=2.0, **options, **PATHS[path])
    twin = torch.optim.SGD(twins, lr=0.05, **options)
    for k in range(5):
        set_gradients(params, k)
        for mine, other in zip(params, twins, strict=True):
            other.grad = mine.grad.clone()
        optimizer.step()
        twin.step()
    for mine, other in zip(params, twins, strict=True):
        torch.testing.assert_close(mine, other, rtol=3 * torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize(("path", "dtype"), EXACT)
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("maximize", [False, True])
def test_p2_is_adamw(path, amsgrad, decay, maximize, dtype):
    params, twins = make_params(dtype), make_params(dtype)
    options = {"amsgrad": amsgrad, "weight_decay": decay, "maximize": maximize}
    optimizer = MirrorAdam(params, lr=0.01, p=2.0, **options, **PATHS[path])
    twin = torch.optim.AdamW(twins, lr=0.01, **options)
    for k in range(8):
        set_gradients(params, k)
        for mine, other in zip(params, twins, strict=True):
            other.grad = mine.grad.clone()
        optimizer.step()
        twin.step()
    for mine, other in zip(params, twins, strict=True):
        torch.testing.assert_close(mine, other, rtol=50 * torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [(MirrorDescent, "constant"), (MirrorDescent, "polyak"), (MirrorAdam, "constant")],
)
@pytest.mark.parametrize("potential", [HypentropyPotential(0.2), ElasticNetPotential(0.4)])
def test_another_potential_fits_the_same_optimizer(kind, rule, potential):
    params = make_params()
    before = [param.detach().clone() for param in params]
    options = {} if kind is MirrorAdam else {"step_rule": rule}
    optimizer = kind(params, lr=0.05, potential=potential, **options)
    loss = set_gradients(params, 0)
    grads = [param.grad.clone() for param in params]
    optimizer.step(loss=loss) if kind is MirrorDescent else optimizer.step()
    lr = optimizer.effective_lr[0] if kind is MirrorDescent else 0.05
    for param, w, g in zip(params, before, grads, strict=True):
        direction = g if kind is MirrorDescent else g.sign()
        expected = potential.to_primal(potential.to_dual(w.double()) - lr * direction.double())
        torch.testing.assert_close(param.double(), expected, rtol=1e-4, atol=1e-5)
    if rule == "polyak":  # the projection lands on the half-space where the linear model is f_min
        predicted = sum(
            float((g.double() * (w - param.detach()).double()).sum())
            for param, w, g in zip(params, before, grads, strict=True)
        )
        assert predicted == pytest.approx(0.05 * loss, rel=1e-5)
