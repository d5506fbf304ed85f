"""A sparsity schedule: an exact share after every ranking, and masks that nothing gets around."""

import copy
import io
import math

import pytest
import torch
from torch import nn

import mirrormargin as mm
from mirrormargin.errors import OptimizerError
from mirrormargin.geometry.compiler import has_numba
from mirrormargin.optim.reference import (
    ReferenceMirrorAdam,
    ReferenceMirrorDescent,
    ReferenceSchedule,
)

NUM_STEPS, EVERY = 30, 4
LAST = 21  # 0.7 of the steps
KINDS = {
    "MirrorAdam": (mm.MirrorAdam, {"lr": 1e-2}),
    "amsgrad": (mm.MirrorAdam, {"lr": 1e-2, "amsgrad": True, "weight_decay": 0.1}),
    "constant": (mm.MirrorDescent, {"lr": 1e-2, "weight_decay": 0.1}),
    "momentum": (mm.MirrorDescent, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
    "normalized": (mm.MirrorDescent, {"lr": 1e-2, "step_rule": "normalized"}),
    "polyak": (mm.MirrorDescent, {"lr": 0.1, "step_rule": "polyak", "max_lr": 0.1}),
    "clip": (mm.MirrorAdam, {"lr": 1e-2, "clip": 0.1}),
    "caution": (mm.MirrorAdam, {"lr": 1e-2, "caution": True}),
    "centred": (mm.MirrorAdam, {"lr": 5e-2, "center": True, "weight_decay": 0.1}),
    "capturable": (mm.MirrorAdam, {"lr": 1e-2, "capturable": True}),
    "elastic": (mm.MirrorAdam, {"lr": 5e-2, "potential": mm.ElasticNetPotential(0.05)}),
}
PATHS = {"fastest": {}, "plain": {"fused": False}, "foreach": {"foreach": True}}


def make_net(dtype=torch.float32, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 8), nn.Linear(8, 3))
        inputs, labels = torch.randn(50, 12), torch.randint(0, 3, (50,))
    return net.to(dtype), inputs.to(dtype), labels


def find_gradients(net, inputs, labels):
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(inputs).float(), labels)
    loss.backward()
    return float(loss.detach())


def train(net, optimizer, schedule, inputs, labels, num_steps=NUM_STEPS, check=None):
    for _ in range(num_steps):
        loss = find_gradients(net, inputs, labels)
        is_polyak = optimizer.param_groups[0].get("step_rule") == "polyak"
        optimizer.step(**({"loss": loss} if is_polyak else {}))
        schedule.step()
        if check is not None:
            check()


def list_masked(optimizer):
    return [
        (param, optimizer.state[param]["mask"], optimizer.state[param].get("center"))
        for group in optimizer.param_groups
        for param in group["params"]
        if "mask" in optimizer.state[param]
    ]


def count_removed(optimizer):
    return sum(int((~mask).sum()) for _, mask, _ in list_masked(optimizer))


def are_removed_still(optimizer):
    """Whether removed weights are exactly 0, or at their centre."""
    return all(
        bool((param.detach() == (0.0 if center is None else center))[~mask].all())
        for param, mask, center in list_masked(optimizer)
    )


@pytest.mark.parametrize("removed", ["forgotten", "clipped", "decayed", "kept"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
def test_the_share_is_exact_and_removed_weights_are_zero_after_every_step(kind, p, path, removed):
    make, options = KINDS[kind]
    if path != "fastest" and kind == "capturable":
        pytest.skip("capturable steps have one path")
    options = options | PATHS[path]
    options |= {} if "potential" in options else {"p": p}
    net, inputs, labels = make_net()
    optimizer = make([param for param in net.parameters()], **options)
    schedule = mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, every=EVERY, removed=removed)
    total = sum(param.numel() for param in net.parameters() if param.ndim == 2)
    seen = []

    def check():
        step = len(seen) + 1
        if step <= LAST and (step % EVERY == 0 or step == LAST):
            share = schedule.share_at(step)
            assert count_removed(optimizer) == math.floor(share * total + 1e-9)
        assert are_removed_still(optimizer)
        seen.append(count_removed(optimizer))

    train(net, optimizer, schedule, inputs, labels, check=check)
    assert seen[-1] == math.floor(0.9 * total)
    assert seen == sorted(seen)
    assert schedule.removed_share == pytest.approx(seen[-1] / total)
    assert all(param.detach().isfinite().all() for param in net.parameters())


@pytest.mark.parametrize("p", [1.2, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["MirrorAdam", "amsgrad", "momentum", "normalized", "centred"])
def test_the_literal_twin_removes_the_same_weights(kind, p):
    make, options = KINDS[kind]
    reference = ReferenceMirrorAdam if make is mm.MirrorAdam else ReferenceMirrorDescent
    net, inputs, labels = make_net(torch.float64)
    twin = copy.deepcopy(net)
    matrices, others = ([one for one in n.parameters() if one.ndim == 2] for n in (net, twin))
    optimizer = make(matrices, **options, p=p)
    schedule = mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, every=EVERY)
    slow = reference(others, **options, p=p)
    slow_schedule = ReferenceSchedule(slow, 0.9, NUM_STEPS, every=EVERY)
    for _ in range(NUM_STEPS):
        for own, one, its in ((net, optimizer, schedule), (twin, slow, slow_schedule)):
            find_gradients(own, inputs, labels)
            one.step()
            its.step()
        for (param, mask, _), gone, other in zip(
            list_masked(optimizer), slow_schedule.removed, others, strict=False
        ):
            assert torch.equal(~mask, gone)
            torch.testing.assert_close(param, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["MirrorAdam", "momentum"])
def test_compiled_steps_are_those_of_plain_ones(kind):
    if not has_numba():
        pytest.skip("compiled steps need Numba")
    make, options = KINDS[kind]
    for p in (1.1, 1.3, 1.5, 2.0):
        nets = []
        for path in ({}, {"fused": False}):
            net, inputs, labels = make_net(seed=3)
            optimizer = make(net.parameters(), **options, p=p, **path)
            schedule = mm.SparsitySchedule(optimizer, 0.8, NUM_STEPS, every=EVERY)
            train(net, optimizer, schedule, inputs, labels)
            nets.append(net)
        for one, two in zip(*(net.parameters() for net in nets), strict=True):
            assert torch.equal(one == 0, two == 0)
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
@pytest.mark.parametrize("removed", ["forgotten", "kept"])
def test_zero_gradients_change_no_bit(p, removed):
    net, inputs, labels = make_net()
    optimizer = mm.MirrorDescent(net.parameters(), lr=0.1, p=p)
    schedule = mm.SparsitySchedule(optimizer, 0.8, NUM_STEPS, every=EVERY, removed=removed)
    train(net, optimizer, schedule, inputs, labels)
    before = [param.detach().clone() for param in net.parameters()]
    for _ in range(5):
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        optimizer.step()
        schedule.step()
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


@pytest.mark.parametrize("removed", ["forgotten", "clipped"])
@pytest.mark.parametrize("kind", ["MirrorAdam", "momentum", "centred"])
@pytest.mark.parametrize("p", [1.1, 1.5])
def test_a_training_that_is_resumed_ends_at_the_same_bits(kind, p, removed):
    make, options = KINDS[kind]

    def build():
        net, inputs, labels = make_net()
        optimizer = make(net.parameters(), **options, p=p)
        more = {"every": EVERY, "removed": removed}
        return (
            net,
            optimizer,
            mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, **more),
            inputs,
            labels,
        )

    whole = build()
    train(*whole)
    for stop in (3, 10, 25):
        first = build()
        train(*first, num_steps=stop)
        file = io.BytesIO()
        torch.save([one.state_dict() for one in first[:3]], file)
        file.seek(0)
        second = build()
        for one, state in zip(second[:3], torch.load(file, weights_only=True), strict=True):
            one.load_state_dict(state)
        assert count_removed(second[1]) == count_removed(first[1])
        train(*second, num_steps=NUM_STEPS - stop)
        for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
@pytest.mark.parametrize("path", PATHS)
def test_a_removed_weight_that_is_written_to_keeps_it_and_is_ranked_again(p, path):
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=p, **PATHS[path])
    schedule = mm.SparsitySchedule(optimizer, 0.6, NUM_STEPS, every=EVERY)
    train(net, optimizer, schedule, inputs, labels, num_steps=8)
    weight = net[0].weight
    mask = optimizer.state[weight]["mask"]
    first, second = (~mask).nonzero()[:2].tolist()
    with torch.no_grad():
        weight[tuple(first)] = 5.0
        weight[tuple(second)] = 1e-30
    train(net, optimizer, schedule, inputs, labels, num_steps=3)
    torch.testing.assert_close(weight[tuple(first)].item(), 5.0)
    train(net, optimizer, schedule, inputs, labels, num_steps=1)  # step 12 ranks
    assert bool(mask[tuple(first)])
    assert not bool(mask[tuple(second)])
    assert weight[tuple(second)] == 0.0
    assert are_removed_still(optimizer)


def test_edits_of_weights_that_are_left_survive_and_resync_keeps_masks():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-4, p=1.1)
    schedule = mm.SparsitySchedule(optimizer, 0.8, NUM_STEPS, every=EVERY)
    train(net, optimizer, schedule, inputs, labels)
    weight = net[0].weight
    place = tuple(optimizer.state[weight]["mask"].nonzero()[0].tolist())
    with torch.no_grad():
        weight.data[place] = 0.5  # behind torch's back
    optimizer.resync()
    train(net, optimizer, schedule, inputs, labels, num_steps=1)
    assert weight[place].item() == pytest.approx(0.5, rel=1e-2)
    assert are_removed_still(optimizer)


def test_a_schedule_of_the_tensors_leaves_each_its_share():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.5)
    schedule = mm.SparsitySchedule(optimizer, 0.75, NUM_STEPS, scope="tensor")
    train(net, optimizer, schedule, inputs, labels)
    for param in (net[0].weight, net[2].weight, net[3].weight):
        assert int((param == 0).sum()) == math.floor(0.75 * param.numel())
    assert not any((net[k].bias == 0).any() for k in (0, 2, 3))


def test_groups_of_mirror_groups_choose_the_matrices():
    net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8))
    optimizer = mm.MirrorAdam(mm.mirror_groups(net, p=1.1))
    assert [m.param.shape for m in mm.SparsitySchedule(optimizer, 0.5, 10)._members] == [(8, 8)]
    named = mm.SparsitySchedule(optimizer, 0.5, 10, params=["0.*", net[1].weight])
    assert [m.param.shape for m in named._members] == [(20, 8), (8, 8)]


@pytest.mark.parametrize("pattern", ["2:4", "1:4", "2:3"])
def test_a_pattern_leaves_at_most_so_many_of_its_neighbours(pattern):
    left, size = map(int, pattern.split(":"))
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.5)
    params = [net[0].weight, net[2].weight]
    share = 1 - left / size
    schedule = mm.SparsitySchedule(
        optimizer, share, NUM_STEPS, pattern=pattern, every=EVERY, params=params
    )
    train(net, optimizer, schedule, inputs, labels)
    for param in (net[0].weight, net[2].weight):
        used = (param.detach().view(-1, size) != 0).sum(dim=1)
        assert bool((used == left).all())


def test_weights_grow_back_where_gradients_are_largest():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.5)
    schedule = mm.SparsitySchedule(optimizer, 0.8, NUM_STEPS, every=EVERY, regrow=0.3)
    train(net, optimizer, schedule, inputs, labels, num_steps=12)
    masks = [mask.clone() for _, mask, _ in list_masked(optimizer)]
    train(net, optimizer, schedule, inputs, labels, num_steps=3)
    find_gradients(net, inputs, labels)
    optimizer.step()
    grads = [param.grad.abs() for param, _, _ in list_masked(optimizer)]
    schedule.step()
    back = [now & ~was for (_, now, _), was in zip(list_masked(optimizer), masks, strict=True)]
    returned = torch.cat([g[own] for g, own in zip(grads, back, strict=True)])
    gone = torch.cat([g[~was & ~own] for g, was, own in zip(grads, masks, back, strict=True)])
    assert returned.numel() > 0
    assert returned.min() >= gone.max()
    train(net, optimizer, schedule, inputs, labels, num_steps=NUM_STEPS - 16)
    total = sum(mask.numel() for mask in masks)
    assert count_removed(optimizer) == math.floor(0.8 * total)


@pytest.mark.parametrize(("removed", "size"), [("kept", 3.0), ("clipped", 0.5), ("decayed", 0.75)])
def test_what_a_removed_weight_returns_with(removed, size):
    """At p = 2 of four weights one is left; then the u of another one grows to 3 behind it."""
    weight = nn.Parameter(torch.tensor([[1.0, 0.1, 0.2, 0.3]]))
    optimizer = mm.MirrorDescent([weight], lr=1.0)
    schedule = mm.SparsitySchedule(optimizer, 0.75, 100, removed=removed)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    schedule.rank(0.75)
    assert weight.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    start = 0.05 if removed == "decayed" else 0.1
    weight.grad = torch.tensor([[0.5, start - 3.0, 0.0, 0.0]])
    optimizer.step()
    assert weight.tolist() == [[0.5, 0.0, 0.0, 0.0]]
    schedule.rank(0.75)
    if removed == "decayed":  # it returned before it was halved
        size = 3.0
    assert weight.tolist() == [[0.0, pytest.approx(size), 0.0, 0.0]]


def test_forgotten_weights_stay_away_and_finalize_lets_them_go():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.5)
    schedule = mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, every=EVERY)
    train(net, optimizer, schedule, inputs, labels)
    zeros = int((net[0].weight == 0).sum())
    schedule.finalize()
    assert int((net[0].weight == 0).sum()) == zeros
    assert not list_masked(optimizer)
    assert "removed" not in optimizer.param_groups[0]
    plain = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.5)
    plain.load_state_dict(optimizer.state_dict())
    find_gradients(net, inputs, labels)
    optimizer.step()
    assert int((net[0].weight == 0).sum()) < zeros


def test_steps_that_a_scaler_skips_and_batches_in_parts_are_taken_as_they_are():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=1.1)
    schedule = mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, every=EVERY)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(NUM_STEPS):
        net.zero_grad()
        for part in (slice(None, 25), slice(25, None)):
            loss = nn.functional.cross_entropy(net(inputs[part]), labels[part]) / 2
            scaler.scale(loss * (math.inf if step == 5 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        assert are_removed_still(optimizer)
    assert schedule.removed_share == pytest.approx(0.9, abs=2e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [1.1, 1.5])
def test_half_precision_is_ranked_by_what_its_weights_are(dtype, p):
    net, inputs, labels = make_net(dtype)
    optimizer = mm.MirrorAdam(net.parameters(), lr=1e-2, p=p)
    schedule = mm.SparsitySchedule(optimizer, 0.8, NUM_STEPS, every=EVERY)
    train(net, optimizer, schedule, inputs, labels)
    total = sum(param.numel() for param in net.parameters() if param.ndim == 2)
    assert count_removed(optimizer) == math.floor(0.8 * total)
    assert are_removed_still(optimizer)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_compiled_torch_steps_hold_removed_weights_still():
    torch._dynamo.reset()
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters(), lr=torch.tensor(1e-2), p=1.1)
    schedule = mm.SparsitySchedule(optimizer, 0.9, NUM_STEPS, every=EVERY)
    find_gradients(net, inputs, labels)
    optimizer.step()
    schedule.rank(0.9)
    step = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        find_gradients(net, inputs, labels)
        step()
        assert are_removed_still(optimizer)


def test_losses_fall_while_weights_are_removed():
    net, inputs, labels = make_net()
    before = find_gradients(net, inputs, labels)
    optimizer = mm.MirrorAdam(mm.mirror_groups(net, p=1.5), lr=3e-2)
    schedule = mm.SparsitySchedule(optimizer, 0.8, 200)
    train(net, optimizer, schedule, inputs, labels, num_steps=200)
    assert find_gradients(net, inputs, labels) < 0.5 * before


BAD = [
    ({"share": 1.0}, "share is 1.0"),
    ({"share": -0.1}, "share is -0.1"),
    ({"num_steps": 0}, "num_steps is 0"),
    ({"start": 0.8}, "end is 0.7"),
    ({"end": 1.5}, "end is 1.5"),
    ({"every": 0}, "every is 0"),
    ({"scope": "layer"}, "scope is 'layer'"),
    ({"removed": "gone"}, "removed is 'gone'"),
    ({"pattern": "4:2"}, "give n:m"),
    ({"pattern": "2:4"}, "give share=0.5"),
    ({"pattern": "1:10", "share": 0.9}, "neighbours"),
    ({"groups": "columns"}, "groups is 'columns'"),
    ({"groups": "heads"}, "give model"),
    ({"groups": "rows", "regrow": 0.1}, "do not go together"),
    ({"groups": "rows", "removed": "kept"}, "forget what they remove"),
    ({"regrow": 0.1, "removed": "kept"}, "use one of them"),
    ({"params": ["nothing.*"]}, "nothing that the optimizer steps"),
    ({"params": [torch.zeros(2)]}, "nothing that the optimizer steps"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=lambda one: str(one))
def test_bad_options_are_refused_and_change_nothing(options, message):
    net, _, _ = make_net()
    optimizer = mm.MirrorAdam(net.named_parameters(), lr=1e-2)
    with pytest.raises(OptimizerError, match=message):
        mm.SparsitySchedule(optimizer, **({"share": 0.9, "num_steps": 10} | options))
    assert "removed" not in optimizer.param_groups[0]


def test_other_optimizers_and_empty_ones_are_refused():
    net, _, _ = make_net()
    with pytest.raises(OptimizerError, match="a MirrorAdam or MirrorDescent"):
        mm.SparsitySchedule(torch.optim.AdamW(net.parameters()), 0.9, 10)
    with pytest.raises(OptimizerError, match="nothing to remove"):
        mm.SparsitySchedule(mm.MirrorAdam([net[0].bias]), 0.9, 10)


def test_two_schedules_of_one_group_must_forget_alike():
    net, _, _ = make_net()
    optimizer = mm.MirrorAdam(net.parameters())
    mm.SparsitySchedule(optimizer, 0.5, 10, params=[net[0].weight])
    with pytest.raises(OptimizerError, match="give both the same"):
        mm.SparsitySchedule(optimizer, 0.5, 10, params=[net[2].weight], removed="kept")


def test_a_schedule_of_another_course_is_not_loaded():
    net, _, _ = make_net()
    optimizer = mm.MirrorAdam(net.parameters())
    saved = mm.SparsitySchedule(optimizer, 0.5, 10).state_dict()
    other = mm.SparsitySchedule(optimizer, 0.6, 10)
    with pytest.raises(OptimizerError, match="build it as the saved one was"):
        other.load_state_dict(saved)
    with pytest.raises(OptimizerError, match="num_calls"):
        other.load_state_dict({**other.state_dict(), "num_calls": -1})


def test_growing_back_needs_gradients():
    net, inputs, labels = make_net()
    optimizer = mm.MirrorAdam(net.parameters())
    schedule = mm.SparsitySchedule(optimizer, 0.5, 10, every=1, end=1.0, regrow=0.5)
    train(net, optimizer, schedule, inputs, labels, num_steps=3)
    net.zero_grad()
    with pytest.raises(OptimizerError, match="before zero_grad"):
        schedule.step()
