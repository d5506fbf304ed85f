"""Optimizers in a geometry that couples the weights of a group."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from catalogue import bits, set_gradients
from torch import nn

import mirrormargin as mm
from mirrormargin import GroupLpPotential, MirrorAdam, MirrorDescent, OptimizerError
from mirrormargin.optim.reference import ReferenceMirrorAdam, ReferenceMirrorDescent

SHAPES = ((4, 6), (6, 4), (4, 4, 3))
POTENTIALS = [
    GroupLpPotential(1.2),
    GroupLpPotential(1.5, "columns"),
    GroupLpPotential(1.5, "rows", block=2),
    GroupLpPotential(3.0, "columns", block=2),
]
DESCENTS = {
    "bare": {},
    "momentum": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "caution": {"momentum": 0.9, "caution": True},
    "normalized": {"step_rule": "normalized", "weight_decay": 0.1},
    "normalized-group": {"step_rule": "normalized", "norm_over": "group", "momentum": 0.5},
    "polyak": {"lr": 0.5, "step_rule": "polyak", "f_min": 0.25, "max_lr": 2.0},
    "clip": {"clip": 0.1},
    "clip-group": {"clip": 0.2, "norm_over": "group", "maximize": True},
    "center": {"lr": 1.0, "center": True, "weight_decay": 0.1},
}
ADAMS = {
    "bare": {},
    "decay": {"weight_decay": 0.1, "amsgrad": True},
    "clip": {"clip": 0.05, "caution": True},
    "center": {"lr": 0.2, "center": True},
}
VARIANTS = [
    pytest.param(kind, {"lr": lr, **options}, id=f"{kind.__name__}-{name}")
    for kind, lr, extras in ((MirrorDescent, 0.05, DESCENTS), (MirrorAdam, 0.02, ADAMS))
    for name, options in extras.items()
]
KINDS = pytest.mark.parametrize(("kind", "options"), VARIANTS)
# What decays, or has moved before, moves without a gradient.
STILL = [
    one for one in VARIANTS if not one.values[1].keys() & {"weight_decay", "momentum", "maximize"}
]
UNREAD = [one for one in VARIANTS if one.values[1].get("step_rule") != "polyak"]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def make_params(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draws = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [nn.Parameter((one + 0.2 * one.sign()).to(dtype)) for one in draws]


def take_steps(optimizer, params, steps):
    for k in steps:
        loss = set_gradients(params, k)
        optimizer.step(**({"loss": loss} if isinstance(optimizer, MirrorDescent) else {}))


def list_groups(x, potential):
    """Views of the groups of a tensor."""
    axis, block = ("rows", "columns").index(potential.groups), potential.block
    return [x.narrow(axis, k, block) for k in range(0, x.shape[axis], block)]


class _InGroups:
    """The literal twins in the geometry of groups, one group after the other."""

    potential: GroupLpPotential

    def _map(self, x, exponent):
        mapped = torch.zeros_like(x)
        for source, target in zip(
            *(list_groups(y, self.potential) for y in (x, mapped)), strict=True
        ):
            size = source.norm()
            target.copy_(size ** (exponent - 2) * source if size else source)
        return mapped

    def to_dual(self, w):
        return self._map(w, self.potential.p)

    def to_primal(self, u):
        return self._map(u, self.potential.p / (self.potential.p - 1))

    def primal_change(self, u, step):
        return self.to_primal(u) - self.to_primal(u - step)

    def find_norms(self, grads):
        q = self.potential.p / (self.potential.p - 1)
        sums = [sum(float(g.norm()) ** q for g in list_groups(x, self.potential)) for x in grads]
        if self.norm_over == "group":
            sums = [sum(sums)] * len(sums)
        return [one ** (1 / q) for one in sums]

    @torch.no_grad()
    def move(self, i, u):
        image = self.c[i] + self.to_primal(u)
        own = [list_groups(x, self.potential) for x in (u, self.u[i], self.w[i], image)]
        for new, old, w, value in zip(*own, strict=True):
            if not torch.equal(new, old):
                w.copy_(value)
        self.u[i] = u
        self.params[i].copy_(self.w[i])


def make_twin(kind, potential, params, options):
    base = ReferenceMirrorAdam if kind is MirrorAdam else ReferenceMirrorDescent
    return type("Twin", (_InGroups, base), {"potential": potential})(
        params, p=potential.p, **options
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 3e-5)])
@pytest.mark.parametrize("potential", POTENTIALS, ids=repr)
@KINDS
def test_equals_the_literal_twin(kind, options, potential, dtype, tolerance):
    params, twins = make_params(dtype), make_params(dtype)
    before = bits(params)
    optimizer = kind(params, potential=potential, **options)
    twin = make_twin(kind, potential, twins, options)
    for k in range(5):
        loss = set_gradients(params, k)
        if k == 2:  # only one entry has a gradient, and its group moves with it
            for param in params:
                kept = torch.zeros_like(param)
                list_groups(kept, potential)[1].flatten(1)[0, 0] = 1.0
                param.grad *= kept
        for mine, other in zip(params, twins, strict=True):
            other.grad = mine.grad.clone()
        optimizer.step(**({} if kind is MirrorAdam else {"loss": loss}))
        twin.step(**({} if kind is MirrorAdam else {"loss": loss}))
        for i, mine in enumerate(params):
            close = {"rtol": tolerance, "atol": tolerance}
            torch.testing.assert_close(mine.double(), twin.w[i], **close)
            torch.testing.assert_close(optimizer.state[mine]["dual"].double(), twin.u[i], **close)
    assert bits(params) != before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
def test_p2_is_the_plain_optimizer(kind, dtype):
    params, others = make_params(dtype), make_params(dtype)
    options = {"lr": 0.05, "weight_decay": 0.1, "clip": 0.5, "norm_over": "group"}
    mine = kind(params, potential=GroupLpPotential(2.0), **options)
    take_steps(mine, params, range(6))
    take_steps(kind(others, p=2.0, fused=False, **options), others, range(6))
    for one, other in zip(params, others, strict=True):
        torch.testing.assert_close(one, other, rtol=20 * torch.finfo(one.dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "options"), STILL)
def test_groups_without_a_gradient_keep_every_bit(kind, options, dtype):
    potential = GroupLpPotential(1.2, "columns", block=2)
    params, before = make_params(dtype), make_params(dtype)
    optimizer = kind(params, potential=potential, **options)
    for k in range(4):
        for param in params:
            param.grad = torch.zeros_like(param)
        if k >= 2:  # a single entry of a block of columns
            params[0].grad[1, 3] = 0.5
        optimizer.step(**({} if kind is MirrorAdam else {"loss": 1.0}))
        if k == 1:
            assert bits(params) == bits(before)
    assert bits(params[1:]) == bits(before[1:])
    kept = [0, 1, 4, 5]
    assert torch.equal(params[0][:, kept], before[0][:, kept])
    if "center" not in options:  # there it begins at the centre, and others have no u
        moved = params[0][:, 2:4] != before[0][:, 2:4]
        assert bool(moved.all()) or dtype is torch.bfloat16
        assert bool(moved[1, 1])


@pytest.mark.parametrize("dtype", DTYPES)
@KINDS
def test_a_checkpoint_gives_the_same_next_steps(kind, options, dtype):
    potential = GroupLpPotential(1.2, block=2)
    params, others = make_params(dtype), make_params(dtype, seed=5)
    optimizer = kind(params, potential=potential, **options)
    take_steps(optimizer, params, range(3))
    resumed = kind(others, potential=potential, **options)
    saved = copy.deepcopy(optimizer.state_dict())
    assert saved["param_groups"][0]["potential"] == repr(potential)
    with torch.no_grad():
        for mine, other in zip(params, others, strict=True):
            other.copy_(mine)
    resumed.load_state_dict(saved)
    take_steps(optimizer, params, range(3, 6))
    take_steps(resumed, others, range(3, 6))
    assert bits(params) == bits(others)
    other = kind(others, potential=GroupLpPotential(1.2, block=1), **options)
    with pytest.raises(OptimizerError, match="build it with the saved one"):
        other.load_state_dict(saved)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("center", [False, True])
def test_weights_are_the_image_of_their_state(center, dtype):
    params = make_params(dtype)
    potential = GroupLpPotential(1.2, "columns")
    optimizer = MirrorAdam(params, lr=0.1, potential=potential, center=center)
    take_steps(optimizer, params, range(5))
    for param in params:
        state = optimizer.state[param]
        assert state["dual"].dtype == torch.promote_types(dtype, torch.float32)
        image = potential.to_primal(state["dual"]) + state.get("center", 0.0)
        assert torch.equal(param, image.to(dtype))


@pytest.mark.parametrize("center", [False, True])
def test_an_edit_moves_the_u_of_its_group_alone(center):
    params, potential = make_params(), GroupLpPotential(1.2)
    optimizer = MirrorAdam(params, lr=0.1, potential=potential, center=center)
    take_steps(optimizer, params, range(3))
    before = optimizer.state[params[0]]["dual"].clone()
    with torch.no_grad():
        params[0][2, 3] += 0.5
    optimizer.resync()
    state = optimizer.state[params[0]]
    others = [0, 1, 3]
    assert torch.equal(state["dual"][others], before[others])
    image = potential.to_primal(state["dual"]) + state.get("center", 0.0)
    torch.testing.assert_close(image, params[0].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("kind", "options"), UNREAD)
def test_captured_steps_are_the_usual_ones(kind, options):
    potential = GroupLpPotential(1.3, block=2)
    results = []
    for more in ({}, {"capturable": True}, {"capturable": True, "compiled": True}):
        params = make_params()
        compiled = more.pop("compiled", False)
        optimizer = kind(params, potential=potential, **options, **more)
        torch._dynamo.reset()
        step = torch.compile(optimizer.step, backend="eager", fullgraph=True)
        for k in range(3):
            set_gradients(params, k)
            step() if compiled else optimizer.step()
        results.append(params)
    for captured in results[1:]:
        for mine, other in zip(captured, results[0], strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def make_model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8), nn.Linear(8, 4))
        return model, torch.randn(50, 12), torch.randint(0, 4, (50,))


def train(model, optimizer, schedule, inputs, labels, num_steps):
    for _ in range(num_steps):
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs).float(), labels).backward()
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("dtype", "state_dtype"),
    [*((dtype, None) for dtype in DTYPES), (torch.float32, torch.bfloat16)],
)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("potential", POTENTIALS[:3], ids=repr)
def test_a_schedule_removes_weights_and_moves_no_other(potential, state_dtype, center, dtype):
    model, inputs, labels = make_model()
    model, inputs = model.to(dtype), inputs.to(dtype)
    options = {"potential": potential, "center": center, "state_dtype": state_dtype}
    groups = mm.mirror_groups(model, **options)
    optimizer = MirrorAdam(groups, lr=0.05)
    schedule = mm.SparsitySchedule(optimizer, 0.8, 20, every=4)
    params = [param for param in model.parameters() if param.ndim == 2]
    total = sum(param.numel() for param in params)
    eps = torch.finfo(dtype if state_dtype is None else state_dtype).eps
    for _ in range(20):
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs).float(), labels).backward()
        optimizer.step()
        before = [param.detach().clone() for param in params]
        schedule.step()
        masks = [optimizer.state[param].get("mask") for param in params]
        for param, old, mask in zip(params, before, masks, strict=True):
            if mask is None:
                continue
            state = optimizer.state[param]
            c = state.get("center", torch.zeros_like(param))
            assert torch.equal(param[~mask], c[~mask])
            # The weights left are where they were, and are the image of their new u.
            tolerance = 4 * potential.dual_exponent * eps * float(old.abs().max())
            torch.testing.assert_close(param[mask], old[mask], rtol=0, atol=tolerance)
            dual = state["dual"].to(torch.promote_types(dtype, torch.float32))
            assert not dual[~mask].any()
            image = potential.to_primal(dual) + c.to(dual.dtype)
            assert torch.equal(image.to(dtype), param)
    removed = sum(int((~optimizer.state[param]["mask"]).sum()) for param in params)
    assert removed == math.floor(0.8 * total + 1e-9)


@pytest.mark.parametrize("num_steps", [8, 10])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_schedule_resumes_with_the_same_bits(dtype, center, num_steps):
    """Right after a ranking as well, where u has just been computed again."""
    model, inputs, labels = make_model()
    model, inputs = model.to(dtype), inputs.to(dtype)
    potential = GroupLpPotential(1.2)

    def build(own):
        groups = mm.mirror_groups(own, potential=potential, center=center)
        optimizer = MirrorAdam(groups, lr=0.05)
        return optimizer, mm.SparsitySchedule(optimizer, 0.8, 30, every=4)

    optimizer, schedule = build(model)
    train(model, optimizer, schedule, inputs, labels, num_steps)
    other = copy.deepcopy(model)
    resumed, its = build(other)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    its.load_state_dict(schedule.state_dict())
    train(model, optimizer, schedule, inputs, labels, 30 - num_steps)
    train(other, resumed, its, inputs, labels, 30 - num_steps)
    assert bits(list(model.parameters())) == bits(list(other.parameters()))
    assert schedule.removed_share == its.removed_share > 0.79


def test_whole_rows_are_removed_and_what_was_written_is_kept():
    model, inputs, labels = make_model()
    optimizer = MirrorAdam(mm.mirror_groups(model, potential=GroupLpPotential(1.2)), lr=0.05)
    schedule = mm.SparsitySchedule(optimizer, 0.5, 20, every=4, groups="rows")
    train(model, optimizer, schedule, inputs, labels, 20)
    rows = torch.cat([p.detach().any(dim=1) for p in model.parameters() if p.ndim == 2])
    assert int((~rows).sum()) == len(rows) // 2
    weight = model[0].weight
    gone = int((~weight.detach().any(dim=1)).nonzero()[0])
    with torch.no_grad():
        weight[gone, 2] = 100.0
    schedule.rank(0.5)
    assert weight[gone, 2] == 100.0
    train(model, optimizer, schedule, inputs, labels, 1)
    assert abs(float(weight[gone, 2].detach()) - 100.0) < 50


def test_what_is_written_before_a_ranking_is_kept():
    model, inputs, labels = make_model()
    optimizer = MirrorAdam(mm.mirror_groups(model, potential=GroupLpPotential(1.2)), lr=0.05)
    schedule = mm.SparsitySchedule(optimizer, 0.5, 20, every=4)
    train(model, optimizer, schedule, inputs, labels, 3)
    with torch.no_grad():
        model[0].weight[:, 2] = 100.0
    schedule.rank(0.5)  # removes others of every row
    torch.testing.assert_close(model[0].weight[:, 2], torch.full((24,), 100.0), rtol=1e-5, atol=0)


def test_a_ranking_keeps_a_u_whose_weight_is_too_small_to_be_seen():
    """Near p = 1 it has come a part of its way from the centre."""
    weight = nn.Parameter(torch.zeros(1, 4))
    potential = GroupLpPotential(1.05)
    optimizer = MirrorDescent([weight], lr=1e-3, potential=potential, center=True)
    schedule = mm.SparsitySchedule(optimizer, 0.5, 10)
    weight.grad = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    optimizer.step()
    dual = optimizer.state[weight]["dual"]
    assert not weight.detach().any()
    assert dual.all()
    schedule.rank(0.5)
    left = dual[optimizer.state[weight]["mask"]]
    assert len(left) == 2
    assert left.all()


@pytest.mark.parametrize("removed", ["clipped", "decayed", "kept"])
def test_hidden_weights_of_coupled_potentials_are_refused(removed):
    model, _, _ = make_model()
    groups = mm.mirror_groups(model, potential=GroupLpPotential(1.2))
    with pytest.raises(OptimizerError, match="use removed='forgotten'"):
        mm.SparsitySchedule(MirrorAdam(groups), 0.5, 10, removed=removed)


@pytest.mark.parametrize("kind", [MirrorDescent, MirrorAdam])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5,), "parameter 1: .*needs a matrix"),
        ((5, 4), "parameter 1: block=2 does not divide the 5 rows"),
    ],
)
def test_tensors_without_such_groups_are_refused_when_they_are_given(kind, shape, message):
    params = [nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(shape))]
    potential = GroupLpPotential(1.5, block=2)
    with pytest.raises(OptimizerError, match=message):
        kind(params, lr=0.1, potential=potential)
    optimizer = kind(params[:1], lr=0.1, potential=potential)
    with pytest.raises(OptimizerError, match=message.replace("1:", "0:")):
        optimizer.add_param_group({"params": params[1:]})
    with pytest.raises(OptimizerError, match="fused=True needs"):
        kind(params[:1], lr=0.1, potential=potential, fused=True)


def test_heads_are_blocks_of_rows_and_of_columns():
    """Near p = 1 one head of two keeps the weight that both had."""
    model = nn.ModuleDict(
        {"query": nn.Linear(4, 6, bias=False), "output": nn.Linear(6, 4, bias=False)}
    )
    for layer in model.values():
        nn.init.ones_(layer.weight)
    options = {
        name: {"potential": GroupLpPotential(1.1, groups, block=3)}
        for name, groups in (("query.*", "rows"), ("output.*", "columns"))
    }
    groups = mm.param_groups(model, options)
    optimizer = MirrorDescent(groups, lr=0.02)
    assert "potential = GroupLpPotential(p=1.1, groups='rows', block=3)" in mm.describe_groups(
        groups
    )
    model["query"].weight.grad = torch.cat([torch.full((3, 4), 0.3), torch.full((3, 4), -0.3)])
    model["output"].weight.grad = torch.cat([torch.full((4, 3), 0.3), torch.full((4, 3), -0.3)], 1)
    for _ in range(10):
        optimizer.step()
    sizes = [
        [float(part.norm()) for part in model["query"].weight.detach().split(3)],
        [float(part.norm()) for part in model["output"].weight.detach().split(3, dim=1)],
    ]
    for small, large in sizes:
        assert 0 < small < 0.05 * large
