"""Steps of tensors that are spread over processes are those of one process that has everything."""

import json

import pytest
from rank_processes import RankServer

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def server():
    server = RankServer(["rank_steps", "rank_models", "rank_checkpoints", "rank_messages"])
    yield server
    server.close()


@pytest.mark.parametrize(
    ("dtype", "count", "full", "num_cases"),
    [
        ("float64", 2, False, 68),
        ("float32", 2, False, 106),
        pytest.param("float64", 3, True, 200, marks=pytest.mark.slow),
        pytest.param("float32", 3, True, 320, marks=pytest.mark.slow),
    ],
)
def test_every_rule_at_every_p_is_that_of_one_process(server, dtype, count, full, num_cases):
    [said] = server.run("rank_steps:check_product", count, dtype, full)
    assert json.loads(said)["cases"] == num_cases


def test_copies_are_not_counted_and_two_axes_are_added(server):
    server.run("rank_steps:check_meshes", 4)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_models_under_fsdp_and_ddp_train_as_one_process(server, count):
    server.run("rank_models:check_models", count)


def test_ranks_agree_on_bad_gradients_and_refuse_alike(server):
    server.run("rank_steps:check_rules", 2)


def test_parameters_may_be_replaced_before_the_first_step(server):
    server.run("rank_models:check_swaps", 2)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("adam", marks=pytest.mark.slow),
        pytest.param("normalized", marks=pytest.mark.slow),
        "polyak",
        pytest.param("hypentropy", marks=pytest.mark.slow),
    ],
)
def test_checkpoints_go_from_two_ranks_to_one_and_to_three(server, name, flat, tmp_path):
    two, one, three = (str(tmp_path / name) for name in ("two", "one", "three"))
    server.run("rank_checkpoints:save", 2, two, name, flat)
    server.run("rank_checkpoints:continue_training", 1, one, name, flat, two, 3, 4)
    server.run("rank_checkpoints:continue_training", 3, three, name, flat, one, 4, 6)


def test_a_step_sends_little_however_many_tensors_there_are(server):
    [said] = server.run("rank_messages:count_messages", 2)
    counts = json.loads(said)
    for few, many in ((5, 50),):
        for name in ("constant", "MirrorAdam"):
            assert counts[f"{name}, {few} tensors"] == counts[f"{name}, {many} tensors"] == [0, 0]
        for name in ("normalized", "group", "clip"):
            messages, sent = counts[f"{name}, {many} tensors"]
            assert messages == counts[f"{name}, {few} tensors"][0] == 2
            assert sent == many * 3 * 8  # a largest entry, a flag, a sum
        assert counts[f"caution, {many} tensors"][0] == 1
        assert counts[f"polyak, p = 2, {many} tensors"][0] == 3  # the loss, and a norm
        assert counts[f"polyak, {many} tensors"][0] < 40
