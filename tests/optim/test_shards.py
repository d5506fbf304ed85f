"""Steps of tensors that are spread over processes are those of one process that has everything."""

import json

import pytest
from rank_processes import RankServer

pytestmark = pytest.mark.distributed

# Messages, and bytes for each tensor, before the first step and in each: docs/many-machines.md has
# them in its table. Polyak's steps send the loss as well, and each group what caution counts.
NOTHING, LOOK, NORM = (0, 0), (1, 16), (2, 24)
SENT = {
    "constant": (LOOK, NOTHING),
    "constant, p = 2": (NOTHING, NOTHING),
    "constant, p = 3": (LOOK, NOTHING),
    "MirrorAdam": (LOOK, NOTHING),
    "MirrorAdam, bfloat16": (LOOK, NOTHING),
    "MirrorAdam, rms": ((3, 40), NOTHING),
    "normalized": (LOOK, NORM),
    "normalized, group": (LOOK, NORM),
    "normalized, rms": ((3, 40), NORM),
    "clip": (LOOK, NORM),
    "caution": (LOOK, (1, 8)),
    "nonfinite": (LOOK, (1, 16)),
    "polyak, p = 2": (NOTHING, (3, 24)),
}


@pytest.fixture(scope="module")
def server():
    names = ("steps", "meshes", "models", "swaps", "checkpoints", "messages", "centers")
    names = (*names, "schedules")
    server = RankServer([f"rank_{name}" for name in names])
    yield server
    server.close()


@pytest.fixture(scope="module")
def counts(server):
    [said] = server.run("rank_messages:count_messages", 2)
    return json.loads(said)


@pytest.mark.parametrize(
    ("dtype", "count", "full", "num_cases"),
    [
        ("float64", 2, False, 76),
        pytest.param("float32", 2, False, 117, marks=pytest.mark.slow),
        pytest.param("float64", 2, True, 232, marks=pytest.mark.slow),
        pytest.param("float32", 2, True, 367, marks=pytest.mark.slow),
        pytest.param("float64", 3, True, 232, marks=pytest.mark.slow),
        pytest.param("float32", 3, True, 367, marks=pytest.mark.slow),
    ],
)
def test_every_rule_at_every_p_is_that_of_one_process(server, dtype, count, full, num_cases):
    [said] = server.run("rank_steps:check_product", count, dtype, full)
    assert json.loads(said)["cases"] == num_cases


@pytest.mark.slow
def test_copies_are_not_counted_and_two_axes_are_added(server):
    server.run("rank_meshes:check_meshes", 4)


@pytest.mark.slow
def test_models_may_be_copied_or_cut_along_a_second_axis(server):
    server.run("rank_meshes:check_models_on_squares", 4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_models_under_fsdp_and_ddp_train_as_one_process(server, count):
    server.run("rank_models:check_models", count)


def test_ranks_agree_on_bad_gradients_and_refuse_alike(server):
    server.run("rank_steps:check_rules", 2)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_schedules_remove_what_they_do_in_one_process(server, count):
    server.run("rank_schedules:check_schedules", count)


@pytest.mark.slow
def test_constant_steps_of_shards_may_be_captured(server):
    server.run("rank_steps:check_captured_steps", 2)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_parameters_may_be_replaced_and_converted(server, count):
    server.run("rank_swaps:check_swaps", count)


def hand_over(server, function, folder, *arguments):
    """Two ranks begin, one resumes, and three do."""
    two, one, three = (str(folder / name) for name in ("two", "one", "three"))
    server.run(function, 2, *arguments, two, None, 0, 2)
    server.run(function, 1, *arguments, one, two, 2, 3)
    server.run(function, 3, *arguments, three, one, 3, 4)


@pytest.mark.parametrize(
    "names",
    [
        ["polyak"],
        pytest.param(["adam", "normalized", "hypentropy", "centred"], marks=pytest.mark.slow),
    ],
)
def test_checkpoints_go_from_two_ranks_to_one_and_to_three(server, names, tmp_path):
    hand_over(server, "rank_checkpoints:train_models", tmp_path, names)


@pytest.mark.slow
def test_checkpoints_hold_states_of_all_sorts(server, tmp_path):
    hand_over(server, "rank_checkpoints:step_tensors", tmp_path)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_given_centres_are_known_again_on_any_number_of_ranks(server, count):
    server.run("rank_centers:check_given", count)


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_checkpoints_without_their_centre_go_from_two_ranks_to_one_and_to_three(
    server, flat, tmp_path
):
    hand_over(server, "rank_centers:hand_over", tmp_path, flat)


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("num_tensors", [5, 50])
def test_a_step_sends_little_however_many_tensors_there_are(counts, num_tensors, num_groups):
    def find(case):
        return counts[f"{case}; {num_tensors} tensors, {num_groups}"]

    for case, (before, each) in SENT.items():
        messages = each[0] * (num_groups if case == "caution" else 1)
        loss = 8 if "polyak" in case else 0
        first, last = find(case)
        assert last == [messages, num_tensors * each[1] + loss], case
        assert first == [before[0] + messages, num_tensors * (before[1] + each[1]) + loss], case
    for messages, _ in find("polyak"):  # a search
        assert messages < 40
