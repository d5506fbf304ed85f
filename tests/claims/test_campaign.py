"""The campaign: which trainings are due, which setting is chosen, what a record holds."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from mirrormargin.claims.campaign.compared_methods import METHODS
from mirrormargin.claims.campaign.grid_search import (
    Method,
    Run,
    choose_setting,
    is_at_edge,
    list_runs,
    rate,
)
from mirrormargin.claims.campaign.league import BLOCKS, LEAGUE
from mirrormargin.claims.campaign.records import (
    do_campaign,
    find_missing,
    make_record,
    read_records,
    write_record,
)
from mirrormargin.data import load_data
from mirrormargin.errors import ClaimError
from mirrormargin.runs import hold_lock
from mirrormargin.training.building import build_model
from mirrormargin.training.config import DataConfig, ImageModel, OptimizerConfig, Seeds
from mirrormargin.training.configurations import find_configuration
from mirrormargin.training.sparsity import select_matrices
from mirrormargin.training.summary import SHARES

SMALL = replace(
    find_configuration("digits/tiny"),
    data=DataConfig("digits", num_train=60),
    model=ImageModel(4, 16, 1, 2, 16, dropout=0.0),
    epochs=1,
    batch_size=20,
)
GRID = {
    f"lr{lr:g}": replace(SMALL, optimizer=OptimizerConfig("AdamW", lr)) for lr in (1e-3, 3e-3, 1e-2)
}
RECORDS = Path(__file__).parents[2] / "records"
METHOD = Method("digits/tiny", "AdamW + L1", GRID, (0, 1))
FOLDER = "digits-tiny/adamw-plus-l1"


def make(setting, selected=50.0, blocks=None, seed=0, **parts):
    """A made-up record of a run of METHOD."""
    config = replace(METHOD.grid[setting], seeds=Seeds(seed, seed, seed))
    frontier = {"blocks": [10.0] * len(SHARES) if blocks is None else blocks}
    key = f"{FOLDER}/{setting}-seed{seed}"
    validation = {"selected": selected, "frontier": frontier}
    return key, {"key": key, "digest": config.digest(), "validation": validation, **parts}


def whole_grid(*selected, **parts):
    return dict(make(s, x, **parts) for s, x in zip(GRID, selected, strict=True))


def describe(runs):
    return [(run.key.removeprefix(f"{FOLDER}/"), run.with_test) for run in runs]


GRID_RUNS = [("lr0.001-seed0", False), ("lr0.003-seed0", False), ("lr0.01-seed0", False)]


def test_with_the_committed_records_nothing_is_trained_again(tmp_path):
    if not RECORDS.is_dir():
        pytest.skip("there are no records beside these tests")
    assert [run.key for run in find_missing(METHODS, RECORDS)] == []
    assert len(find_missing(METHODS, tmp_path)) >= sum(len(method.grid) for method in METHODS)


def test_folder_is_made_of_configuration_and_method():
    assert METHOD.folder == FOLDER
    assert replace(METHOD, name="MirrorAdam p=1.1").folder == "digits-tiny/mirroradam-p1.1"


def test_methods_of_the_campaign_that_share_records_share_their_trainings():
    digests = {}
    for method in METHODS:
        for setting, config in method.grid.items():
            key = f"{method.folder}/{setting}"
            assert digests.setdefault(key, config.digest()) == config.digest(), key


def test_a_method_can_use_the_records_of_another():
    sparse = replace(METHOD, name="AdamW, sparse", removed=(0.9,), records_of="AdamW + L1")
    assert sparse.folder == METHOD.folder


@pytest.mark.parametrize("known", [0, 1, 2])
def test_grid_comes_first_and_whole(known):
    records = dict(list(whole_grid(1, 2, 3).items())[:known])
    runs = list_runs(METHOD, records)
    assert describe(runs) == GRID_RUNS
    assert [run.is_done(records) for run in runs] == [True] * known + [False] * (3 - known)


def test_chosen_setting_is_trained_with_every_seed_and_tested():
    runs = list_runs(METHOD, whole_grid(50, 70, 60))
    assert describe(runs) == [
        ("lr0.001-seed0", False),
        ("lr0.01-seed0", False),
        ("lr0.003-seed0", True),
        ("lr0.003-seed1", True),
    ]
    assert [run.config.seeds for run in runs[2:]] == [Seeds(0, 0, 0), Seeds(1, 1, 1)]
    assert {run.config.optimizer.lr for run in runs[2:]} == {3e-3}


def test_grid_of_one_needs_no_choice():
    method = replace(METHOD, grid={"lr0.001": GRID["lr0.001"]})
    assert describe(list_runs(method, {})) == [("lr0.001-seed0", True), ("lr0.001-seed1", True)]


def test_fastest_falling_training_loss_can_choose():
    method = replace(METHOD, by_training_loss=True)

    def choose(*levels, losses=(1.0, 1.0, 1.0)):
        records = {}
        for setting, reached, loss in zip(GRID, levels, losses, strict=True):
            key, record = make(setting, levels=reached, epochs=[{"train_loss": loss}])
            records[key] = record
        return choose_setting(method, records), is_at_edge(method, records)

    assert choose({"0.5": 9}, {"0.5": 20, "0.1": 30}, {"0.5": 5}) == ("lr0.003", False)
    assert choose({"0.5": 9}, {"0.5": 10}, {"0.5": 8}) == ("lr0.01", True)
    assert choose({}, {}, {}, losses=(0.9, 0.8, 2.0)) == ("lr0.003", False)


def test_a_method_takes_the_setting_that_another_one_has_found():
    other = replace(METHOD, name="elsewhere", tuned=METHOD)
    assert list_runs(other, dict([make("lr0.001"), make("lr0.003")])) == []
    runs = list_runs(other, whole_grid(50, 70, 60))
    assert [run.key for run in runs] == [
        f"digits-tiny/elsewhere/lr0.003-seed{seed}" for seed in (0, 1)
    ]
    assert all(run.with_test for run in runs)
    failed = whole_grid(50, 70, 60, failed="the loss is nan")
    assert list_runs(other, failed) == []


def test_smaller_losses_are_better():
    language = find_configuration("shakespeare/char").as_dict()
    _, better = make("lr0.01", 1.5, [1.6] * len(SHARES), config=language)
    _, worse = make("lr0.01", 1.6, [1.9] * len(SHARES), config=language)
    assert rate(better) > rate(worse) > rate({"failed": "nan"})
    assert rate(better, (0.9,)) == -1.6 > rate(worse, (0.9,))


@pytest.mark.parametrize("config", LEAGUE)
def test_ways_of_the_league_have_as_many_settings_and_steps(config):
    methods = LEAGUE[config]
    assert {len(method.grid) for method in methods} == {8}
    configs = [(method, one) for method in methods for one in method.grid.values()]
    assert all(one.sparsifier is None or one.sparsifier.share in m.removed for m, one in configs)
    assert len({(one.epochs, one.schedule, one.warmup, one.data) for _, one in configs}) == 1


def test_the_league_gives_p_to_the_matrices_of_blocks_alone():
    model = build_model(SMALL, load_data("digits", num_train=60))
    names = {n for n, _ in model.named_parameters() if fnmatchcase(n, BLOCKS)}
    assert names == set(select_matrices(model, "blocks"))


def test_settings_can_be_tried_for_fewer_epochs():
    method = replace(METHOD, trial_epochs=3)
    trials = [f"{setting}-3-epochs-seed0" for setting in GRID]
    runs = list_runs(method, {})
    assert describe(runs) == [(trial, False) for trial in trials]
    assert {run.config.epochs for run in runs} == {3}
    records = {}
    for run, selected in zip(runs, (50.0, 70.0, 60.0), strict=True):
        validation = {"selected": selected}
        record = {"key": run.key, "digest": run.config.digest(), "validation": validation}
        records[run.key] = record
    runs = list_runs(method, records)
    assert describe(runs)[3:] == [("lr0.003-seed0", True), ("lr0.003-seed1", True)]
    assert {run.config.epochs for run in runs[3:]} == {1}


def test_first_of_equals_is_chosen():
    assert choose_setting(METHOD, whole_grid(50, 70, 70)) == "lr0.003"


def test_a_setting_that_another_seed_does_not_learn_with_gives_way_to_the_next_best():
    records = whole_grid(50, 70, 60)
    key, bad = make("lr0.003", 59.9, seed=1)
    for outcome in (bad, {"digest": bad["digest"], "failed": "the loss is nan"}):
        assert choose_setting(METHOD, records | {key: outcome}) == "lr0.01"
    assert choose_setting(METHOD, records | dict([make("lr0.003", 60.1, seed=1)])) == "lr0.003"
    # What it was with other settings does not count.
    assert choose_setting(METHOD, records | {key: bad | {"digest": "another"}}) == "lr0.003"


def test_a_setting_that_failed_is_no_next_best():
    records = whole_grid(50, 70, 60) | dict([make("lr0.003", 0.0, seed=1)])
    for setting in ("lr0.001", "lr0.01"):
        key, record = make(setting)
        records[key] = {"key": key, "digest": record["digest"], "failed": "the loss is nan"}
    assert choose_setting(METHOD, records) == "lr0.003"


def test_failed_setting_is_never_chosen_over_another():
    records = whole_grid(0.0, 0.0, 0.0)
    key = f"{FOLDER}/lr0.001-seed0"
    records[key] = {"key": key, "digest": records[key]["digest"], "failed": "the loss is nan"}
    assert choose_setting(METHOD, records) == "lr0.003"


def test_only_shares_that_are_removed_count():
    shares = (0.9, 0.95, 0.98)
    frontier = dict.fromkeys(SHARES, 0.0) | {0.9: 90.0, 0.95: 60.0, 0.98: 30.0}
    _, record = make("lr0.001", blocks=list(frontier.values()))
    assert rate(record, shares) == pytest.approx(60.0)
    assert rate(record, (0.98,)) == pytest.approx(30.0)
    assert rate(record) == 50.0
    # The others do not count, and the accuracy neither.
    others = [100.0 - value for value in frontier.values()]
    method = replace(METHOD, removed=shares)
    low = [x if s in shares else 99.0 for s, x in zip(SHARES, others, strict=True)]
    records = dict(
        [
            make("lr0.001", 99.0, low),
            make("lr0.003", 10.0, list(frontier.values())),
            make("lr0.01", 99.0, [5.0] * len(SHARES)),
        ]
    )
    assert choose_setting(method, records) == "lr0.003"


def test_record_of_a_default_or_of_shares_that_have_changed_counts_as_missing():
    key, record = make("lr0.001")
    run = Run(key, GRID["lr0.001"], with_test=False)
    config = json.loads(json.dumps(run.config.as_dict()))
    assert run.is_done({key: record | {"config": config, "shares": list(SHARES)}})
    older = {k: v for k, v in config.items() if k != "clip"}  # a setting that was added since
    assert run.is_done({key: record | {"config": older}})
    assert not run.is_done({key: record | {"config": config | {"epochs": 999}}})
    model = config["model"] | {"dropout": 0.5}
    assert not run.is_done({key: record | {"config": config | {"model": model}}})
    assert not run.is_done({key: record | {"shares": [0.5]}})


def test_record_of_another_configuration_counts_as_missing():
    records = whole_grid(50, 70, 60)
    records[f"{FOLDER}/lr0.01-seed0"]["digest"] = "0" * 16
    runs = list_runs(METHOD, records)
    assert describe(runs) == GRID_RUNS
    assert [run.is_done(records) for run in runs] == [True, True, False]


def test_chosen_run_is_done_once_it_is_tested():
    key, record = make("lr0.003")
    tested = Run(key, GRID["lr0.003"], with_test=True)
    assert Run(key, GRID["lr0.003"], with_test=False).is_done({key: record})
    assert not tested.is_done({key: record})
    assert not tested.is_done({})
    assert tested.is_done({key: record | {"test": {}}})
    assert tested.is_done({key: record | {"failed": "the loss is nan"}})


def test_records_come_back(tmp_path):
    records = whole_grid(50, 70, 60)
    for record in records.values():
        write_record(tmp_path, record)
    assert read_records(tmp_path) == records
    assert (tmp_path / FOLDER / "lr0.001-seed0.json").exists()
    assert read_records(tmp_path / "nothing") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"digest": 1}'])
def test_damaged_record_is_named(tmp_path, text):
    write_record(tmp_path, make("lr0.001")[1])
    (tmp_path / FOLDER / "lr0.003-seed0.json").write_text(text)
    with pytest.raises(ClaimError, match=r"lr0\.003-seed0\.json is damaged"):
        read_records(tmp_path)


def test_record_that_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, make("lr0.001", float("nan"))[1])
    assert read_records(tmp_path) == {}


KEYS = {
    "device",
    "shares",
    "key",
    "command",
    "digest",
    "config",
    "data",
    "environment",
    "threads",
    "epochs",
}
KEYS |= {"selected_epoch", "seconds", "validation", "weights", "steps", "levels"}


@pytest.mark.parametrize("with_test", [False, True])
def test_record_says_all_about_a_training(tmp_path, with_test):
    run = Run(f"{FOLDER}/lr0.001-seed0", GRID["lr0.001"], with_test)
    seen = []
    record = make_record(run, tmp_path, on_step=lambda *known: seen.append(known[:3]))
    assert record.keys() == (KEYS | {"test"} if with_test else KEYS)
    assert record["digest"] == run.config.digest()
    assert record["config"] == run.config.as_dict()
    assert record["steps"]["step"] == [1, 2, 3]
    assert len(record["steps"]["train_loss"]) == 3
    assert seen == [(run, step, 3) for step in (1, 2, 3)]
    assert json.loads(json.dumps(record, allow_nan=False))["key"] == run.key
    assert run.is_done({run.key: record})


def test_diverged_training_is_a_failed_record(tmp_path):
    config = replace(SMALL, optimizer=OptimizerConfig("SGD", 1e30), epochs=20)
    record = make_record(Run("a/b/c", config, with_test=False), tmp_path)
    assert "learning rate" in record["failed"]
    assert "validation" not in record


def test_campaign_makes_all_records_and_then_none(tmp_path):
    made = []
    records, runs = tmp_path / "records", tmp_path / "runs"
    do_campaign([METHOD], records, runs, on_record=lambda record: made.append(record["key"]))
    found = read_records(records)
    best = choose_setting(METHOD, found)
    # The grid, the chosen setting once more with its test accuracy, and its other seed.
    assert made == [f"{FOLDER}/{s}-seed0" for s in GRID] + [
        f"{FOLDER}/{best}-seed{seed}" for seed in (0, 1)
    ]
    assert {key for key, record in found.items() if "test" in record} == set(made[3:])
    assert find_missing([METHOD], records) == []
    do_campaign([METHOD], records, runs, on_record=lambda record: made.append("again"))
    assert len(made) == 5


def test_campaign_leaves_out_what_another_process_holds(tmp_path):
    records, runs = tmp_path / "records", tmp_path / "runs"
    runs.mkdir()
    held = f"{FOLDER}/lr0.003-seed0"
    with hold_lock(runs / (held.replace("/", "--") + ".lock"), wait=False):
        do_campaign([METHOD], records, runs)
    assert read_records(records).keys() == {f"{FOLDER}/{s}-seed0" for s in ("lr0.001", "lr0.01")}
    assert [run.key for run in find_missing([METHOD], records)] == [held]
