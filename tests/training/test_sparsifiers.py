"""Ways to sparse weights: gradients, starting points, shares that are reached, plain weights."""

from dataclasses import replace

import pytest
import torch

from mirrormargin import LpPotential, MirrorAdam, mirror_groups
from mirrormargin.data import load_data
from mirrormargin.training.building import build_model
from mirrormargin.training.config import GradualPruning, L1Penalty, Powerpropagation, Schedule
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.loop import train_model
from mirrormargin.training.sparsifiers import build_sparsifier, collect_weights, soften
from mirrormargin.training.sparsity import select_matrices

CONFIG = find_configuration("digits/tiny")


@pytest.fixture(scope="module")
def data():
    return load_data("digits", num_train=100)


@pytest.fixture
def model(data):
    return build_model(CONFIG, data).eval()


def compute_gradients(model, data):
    model.zero_grad()
    model(data.train.inputs[:20]).square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("weight", [1, 50])
def test_l1_adds_the_penalty_s_gradient_to_block_matrices_only(model, data, weight):
    plain = compute_gradients(model, data)
    compute_gradients(model, data)
    build_sparsifier(L1Penalty(0.01), model, weight).after_backward()
    blocks = select_matrices(model, "blocks")
    assert blocks
    for name, parameter in model.named_parameters():
        copy = parameter.detach().clone().requires_grad_()
        (0.01 * weight * copy.abs().sum() * (name in blocks)).backward()
        torch.testing.assert_close(parameter.grad, plain[name] + copy.grad)


def test_sum_of_losses_trains_like_their_mean_with_the_penalty_scaled_alike(data, tmp_path):
    # SGD on the sum with lr / 25 is SGD on the mean of 25: only if the penalty is scaled too.
    mean = replace(
        CONFIG,
        epochs=1,
        batch_size=25,
        optimizer=replace(CONFIG.optimizer, name="SGD", p=2.0, lr=0.05),
        sparsifier=L1Penalty(0.02),
    )
    total = replace(mean, reduction="sum", optimizer=replace(mean.optimizer, lr=0.05 / 25))
    one = train_model(mean, data, tmp_path / "mean").final
    two = train_model(total, data, tmp_path / "sum").final
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_a_power_has_a_gradient_at_zero(model, alpha):
    with torch.no_grad():
        model.blocks[0].query.weight.zero_()
    build_sparsifier(Powerpropagation(alpha), model, 1)
    weight = model.blocks[0].query.weight
    weight.sum().backward()
    (theta,) = model.blocks[0].query.parametrizations.weight.parameters()
    assert not weight.any()
    expected = torch.full_like(theta, 1.0 if alpha == 1 else 0.0)
    torch.testing.assert_close(theta.grad, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_powers_start_from_the_same_weights(model, data, alpha):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    build_sparsifier(Powerpropagation(alpha), model, 1)
    trained = {name for name, _ in model.named_parameters()}
    assert sum("parametrizations" in name for name in trained) == 12
    weights = collect_weights(model)
    assert weights.keys() == before.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, before[name], rtol=1e-5, atol=1e-6)


def test_gradient_of_a_power_follows_the_chain_rule(model, data):
    plain = compute_gradients(model, data)
    build_sparsifier(Powerpropagation(3.0), model, 1)
    powered = compute_gradients(model, data)
    name = "blocks.0.query"
    theta = model.get_parameter(f"{name}.parametrizations.weight.original").detach()
    torch.testing.assert_close(
        powered[f"{name}.parametrizations.weight.original"],
        3 * theta.square() * plain[f"{name}.weight"],
        rtol=1e-3,
        atol=1e-6,
    )


def test_trained_powers_load_into_a_plain_model_with_the_same_logits(data, model):
    build_sparsifier(Powerpropagation(2.0), model, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    plain = build_model(CONFIG, data).eval()
    plain.load_state_dict(collect_weights(model))
    inputs = data.validation.inputs[:50]
    torch.testing.assert_close(plain(inputs), model(inputs), rtol=1e-5, atol=1e-5)


def test_collected_weights_are_copies(model):
    weights = collect_weights(model)
    before = weights["head.weight"].clone()
    with torch.no_grad():
        model.get_parameter("head.weight").zero_()
    assert torch.equal(weights["head.weight"], before)


def count_zeros(matrices):
    return sum(int((m == 0).sum()) for m in matrices.values())


@pytest.mark.parametrize("share", [0.5, 0.9, 0.98])
def test_gradual_pruning_follows_the_cubic_course_to_its_share(model, share):
    sparsifier = build_sparsifier(GradualPruning(share, start=0.2, end=0.8), model, 1)
    matrices = select_matrices(model, "blocks")
    entries = sum(m.numel() for m in matrices.values())
    generator = torch.Generator().manual_seed(0)
    previous = {name: m.detach() == 0 for name, m in matrices.items()}
    for step in range(1, 201):
        with torch.no_grad():
            for matrix in matrices.values():  # an optimizer that moves everything
                matrix.add_(torch.randn(matrix.shape, generator=generator), alpha=1e-3)
        sparsifier.after_step(step, 200)
        if step < 40:
            assert count_zeros(matrices) == 0
        elif step % 20 == 0:
            s = min((step - 40) / 120, 1)
            wanted = share * (1 - (1 - s) ** 3) * entries
            assert abs(count_zeros(matrices) - wanted) <= 3  # rounding, and equal magnitudes
        for name, matrix in matrices.items():
            assert bool((matrix[previous[name]] == 0).all())  # once zero, zero for good
            previous[name] = matrix.detach() == 0


def test_gradual_pruning_removes_the_smallest_of_all_matrices_together(model):
    sparsifier = build_sparsifier(GradualPruning(0.7), model, 1)
    matrices = select_matrices(model, "blocks")
    before = torch.cat([m.detach().abs().flatten() for m in matrices.values()])
    sparsifier.after_step(100, 100)
    after = torch.cat([m.detach().abs().flatten() for m in matrices.values()])
    assert before[after == 0].max() < before[after != 0].min()


def test_without_memory_weights_return_until_the_course_ends(model):
    sparsifier = build_sparsifier(GradualPruning(0.5, 0.0, 0.8, memoryless=True), model, 1)
    matrices = select_matrices(model, "blocks").values()

    def revive():
        """Make removed weights the largest ones, and say which they are."""
        removed = [matrix.detach() == 0 for matrix in matrices]
        for matrix, mask in zip(matrices, removed, strict=True):
            matrix.data[mask] = 1e3
        return removed

    def is_alive(removed):
        return [bool(matrix[mask].all()) for matrix, mask in zip(matrices, removed, strict=True)]

    sparsifier.after_step(20, 100)
    removed = revive()
    assert all(mask.any() for mask in removed)
    for step in (21, 40):  # nothing holds them between two rankings, and they win the next
        sparsifier.after_step(step, 100)
        assert all(is_alive(removed))
    sparsifier.after_step(80, 100)
    for step in (81, 100):  # from the end of the course on a removed weight stays removed
        removed = revive()
        sparsifier.after_step(step, 100)
        assert not any(is_alive(removed))


def test_masks_are_taken_back(model, data):
    sparsifier = build_sparsifier(GradualPruning(0.8), model, 1)
    sparsifier.after_step(100, 100)
    kept = {name: mask.clone() for name, mask in sparsifier.tensors().items()}
    other = build_model(CONFIG, data)
    fresh = build_sparsifier(GradualPruning(0.8), other, 1)
    fresh.load(kept)
    fresh.after_step(1, 100)  # before the course starts: only the masks prune
    for name, matrix in select_matrices(other, "blocks").items():
        assert torch.equal(matrix != 0, kept[name])


def test_pruned_weights_are_not_called_underflowed(data, tmp_path):
    mirror = replace(CONFIG.optimizer, name="MirrorAdam", p=1.1, lr=1e-3)
    config = replace(CONFIG, optimizer=mirror, sparsifier=GradualPruning(0.9))
    training = train_model(config, data, tmp_path)
    entries = sum(m.numel() for m in select_matrices(training.final, "blocks").values())
    assert 0 <= training.underflowed < 0.5 * entries


def test_trained_and_pruned_model_has_the_share_of_zeros(data, tmp_path):
    config = replace(
        CONFIG,
        epochs=12,
        batch_size=20,
        optimizer=replace(CONFIG.optimizer, name="AdamW", p=2.0, weight_decay=0.01),
        sparsifier=GradualPruning(0.9),
    )
    training = train_model(config, data, tmp_path)
    model = build_model(config, data)
    model.load_state_dict(training.final)
    matrices = select_matrices(model, "blocks")
    entries = sum(m.numel() for m in matrices.values())
    assert abs(count_zeros(matrices) - 0.9 * entries) <= 3


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
def test_a_schedule_ends_at_its_share_and_selects_weights_that_have_it(p, data, tmp_path):
    config = replace(
        CONFIG,
        epochs=10,
        batch_size=20,
        optimizer=replace(CONFIG.optimizer, p=p),
        sparsifier=Schedule(0.9, every=5),
    )
    found = train_model(config, data, tmp_path)
    for weights in (found.final, found.selected):
        matrices = select_matrices(weights, "blocks").values()
        size = sum(matrix.numel() for matrix in matrices)
        assert sum(int((matrix == 0).sum()) for matrix in matrices) == int(0.9 * size)
    assert found.selected_epoch >= 7


@pytest.mark.parametrize("groups", ["units", "heads+units"])
def test_a_schedule_removes_whole_units_and_heads(groups, data, tmp_path):
    config = replace(CONFIG, epochs=10, batch_size=20, sparsifier=Schedule(0.5, groups=groups))
    final = train_model(config, data, tmp_path).final
    expand = [final[name] for name in final if name.endswith("expand.weight")]
    gone = sum(int((one == 0).all(dim=1).sum()) for one in expand)
    assert gone == sum(len(one) for one in expand) // 2
    queries = [final[name] for name in final if name.endswith("query.weight")]
    heads = [one.view(config.model.num_heads, -1) for one in queries]
    gone = sum(int((one == 0).all(dim=1).sum()) for one in heads)
    assert gone == (sum(len(one) for one in heads) // 2 if "heads" in groups else 0)


@pytest.mark.parametrize("p", [1.1, 1.25, 1.5, 2.0])
def test_the_proximal_step_moves_the_dual_towards_zero(model, data, p):
    optimizer = MirrorAdam(mirror_groups(model, p=p), lr=1e-3)
    compute_gradients(model, data)
    optimizer.step()
    potential = LpPotential(p)
    blocks = select_matrices(model, "blocks")
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    sizes = [potential.to_dual(weight.detach()).abs().flatten() for weight in blocks.values()]
    amount = float(torch.cat(sizes).median())
    soften(optimizer, model, amount / 1e-3)
    for name, weight in model.named_parameters():
        if name not in blocks:
            assert torch.equal(weight, before[name])
            continue
        u = potential.to_dual(before[name].double())
        expected = potential.to_primal(u.sign() * (u.abs() - amount).clamp_min(0))
        torch.testing.assert_close(weight.double(), expected, rtol=1e-3, atol=1e-6)
        assert (weight == 0).any()


@pytest.mark.parametrize("p", [1.25, 1.5])
def test_after_a_proximal_step_the_optimizer_goes_on_from_there(model, data, p):
    optimizer = MirrorAdam(mirror_groups(model, p=p), lr=0.0)
    for _ in range(2):  # the second step moves nothing, and rebuilds nothing that matters
        compute_gradients(model, data)
        optimizer.step()
        soften(optimizer, model, 0.0)
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    compute_gradients(model, data)
    optimizer.step()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight, before[name], rtol=1e-5, atol=1e-9)


def test_a_training_with_a_proximal_penalty_ends_with_zeros(data, tmp_path):
    config = replace(
        CONFIG,
        epochs=2,
        optimizer=replace(CONFIG.optimizer, name="AdamW", p=2.0, lr=3e-3),
        proximal_l1=1.0,
    )
    weights = train_model(config, data, tmp_path / "soft").final
    zeros = [float((w == 0).float().mean()) for w in select_matrices(weights, "blocks").values()]
    assert min(zeros) > 0.02
