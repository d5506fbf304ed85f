"""``mirrormargin lab train``: what the library's call gives, kept, resumed and printed."""

import dataclasses
import json

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.cli import main
from mirrormargin.cli.lab import kept_runs

SHORT = ["--steps", "40", "--record", "5", "--threads", "1"]
WAYS = {
    "normalized": (["--eps", "1e-9"], {"eps": 1e-9}),
    "constant": (["--step-rule", "constant", "--lr", "2"], {"step_rule": "constant", "lr": 2.0}),
    "polyak": (
        ["--step-rule", "polyak", "--lr", "1", "--max-lr", "10"],
        {"step_rule": "polyak", "lr": 1.0, "max_lr": 10.0},
    ),
    "starts": (
        ["--init-std", "0.5", "--init-seeds", "2-3"],
        {"init": mm.NormalInit(0.5, [2, 3])},
    ),
    "factors": (
        ["--parameterization", "KQ", "--rank", "2", "--init-std", "1"],
        {"parameterization": "KQ", "rank": 2, "init": mm.NormalInit(1.0, [0])},
    ),
    "path": (["--keep-path"], {"keep_path": True}),
}


def assert_same_bits(first, second):
    for field in dataclasses.fields(mm.AttentionRecord):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name == "problems":
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a.tokens, b.tokens)
        elif field.name == "state":
            for name in one:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        elif field.name == "settings":
            assert one == other
        elif one is None or other is None:
            assert one is other, field.name
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


def train(*argv):
    return main(["lab", "train", "unit_sphere", *SHORT, *argv])


@pytest.mark.parametrize("way", WAYS)
def test_the_saved_record_is_that_of_the_library(tmp_path, way):
    argv, options = WAYS[way]
    assert train("--p", "1.75", "3", "--seed", "1-2", *argv, "--out", str(tmp_path / "run")) == 0
    problems = [mm.synthetic.unit_sphere(seed) for seed in (1, 2)]
    options = {"num_steps": 40, "record": 5} | options
    expected = mm.train_attention(problems, [1.75, 3.0], **options)
    assert_same_bits(mm.AttentionRecord.load(tmp_path / "run"), expected)


def test_a_joint_training_is_that_of_the_library(tmp_path):
    argv = ["--joint", "--decay", "1", "--head-decay", "0.5", "--init-std", "0.1"]
    out = tmp_path / "run"
    assert main(["lab", "train", "joint_toy", *SHORT, "--p", "2", *argv, "--out", str(out)]) == 0
    init = mm.NormalInit(0.1, [0])
    expected = mm.train_joint(
        mm.synthetic.joint_toy(),
        2.0,
        decay=1.0,
        head_decay=0.5,
        num_steps=40,
        record=5,
        init=init,
        head_init=init,
    )
    assert_same_bits(mm.AttentionRecord.load(out), expected)


def test_saving_on_the_way_changes_no_bit(tmp_path, monkeypatch):
    monkeypatch.setattr("mirrormargin.dynamics.descent.batch.PIECE", 1e-5)
    monkeypatch.setattr(kept_runs, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(kept_runs, "MOST_SAVING", 1e9)
    saves = []
    save = mm.AttentionRecord.save
    monkeypatch.setattr(
        mm.AttentionRecord, "save", lambda self, folder: (saves.append(1), save(self, folder))
    )
    argv = ["--p", "1.5", "3", "--steps", "40", "30", "--record", "5", "--out", str(tmp_path)]
    assert main(["lab", "train", "unit_sphere", *argv]) == 0
    assert len(saves) > 10
    expected = mm.train_attention(
        mm.synthetic.unit_sphere(1), [1.5, 3.0], num_steps=[40, 30], record=5
    )
    assert_same_bits(mm.AttentionRecord.load(tmp_path), expected)


def test_resume_with_more_steps_goes_further(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert train("--out", out) == 0
    assert (
        main(["lab", "train", "--resume", out, "--steps", "90", "--record", "50", "70", "--quiet"])
        == 0
    )
    record = mm.AttentionRecord.load(out)
    assert record.steps[0, 0, 0, -3:].tolist() == [50, 70, 90]
    straight = mm.train_attention(mm.synthetic.unit_sphere(1), 2.0, num_steps=90)
    np.testing.assert_array_equal(record.W, straight.W)
    assert " 90 " in capsys.readouterr().out


def test_resuming_what_is_complete_changes_nothing(tmp_path):
    out = str(tmp_path / "run")
    assert train("--out", out) == 0
    before = mm.AttentionRecord.load(out)
    assert main(["lab", "train", "--resume", out]) == 0
    assert_same_bits(mm.AttentionRecord.load(out), before)


def test_json_holds_the_numbers_of_the_record(tmp_path, capsys):
    out = tmp_path / "run"
    assert train("--p", "2", "3", "--seed", "4", "7", "--json", "--out", str(out)) == 0
    report = json.loads(capsys.readouterr().out)
    record = mm.AttentionRecord.load(out)
    assert report["complete"] is True
    assert [row["p"] for row in report["exponents"]] == [2.0, 3.0]
    for j, row in enumerate(report["exponents"]):
        last = record.divergence[:, j, 0, -1]
        assert row["divergence"] == np.median(last)
        assert row["worst_divergence"] == last.max()
        assert row["ends"] == {"done": 2}
    assert [run["seed"] for run in report["runs"]] == [4, 4, 7, 7]
    last = report["runs"][-1]
    assert last["norm"] == record.norm[1, 1, 0, -1]
    assert last["log10_loss_gap"] == record.log_loss_gap[1, 1, 0, -1] / np.log(10)
    assert last["selection"] == record.final_selection[1, 1, 0].tolist()
    optimal = np.mean(record.final_selection[1, 1, 0] == record.problems[1].optimal_tokens)
    assert last["optimal"] == optimal


def test_table_has_a_line_for_each_exponent_and_quiet_leaves_the_rest_out(capsys):
    assert train("--p", "1.75", "2", "--quiet") == 0
    captured = capsys.readouterr()
    header, *lines = captured.out.splitlines()
    assert header.split()[:4] == ["p", "runs", "steps", "D"]
    assert [line.split()[:3] for line in lines] == [["1.75", "1", "40"], ["2", "1", "40"]]
    assert all(line.endswith("1 done") for line in lines)
    assert captured.err == ""
    assert train() == 0
    assert "directional divergence of W" in capsys.readouterr().out


def test_runs_that_diverge_are_counted_and_not_averaged(capsys):
    argv = ["--step-rule", "constant", "--lr", "1e300", "--p", "1.1", "--json"]
    assert train(*argv) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["exponents"][0]["ends"] == {"diverged": 1}
    assert report["runs"][0]["end"] == "diverged"


def test_a_file_is_trained_like_the_problem_it_holds(tmp_path, capsys):
    problem = mm.synthetic.unit_sphere(1)
    names = ("tokens", "queries", "labels", "head")
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({name: getattr(problem, name).tolist() for name in names}))
    assert main(["lab", "train", str(path), *SHORT, "--json"]) == 0
    from_file = json.loads(capsys.readouterr().out)
    assert train("--json") == 0
    assert from_file["exponents"] == json.loads(capsys.readouterr().out)["exponents"]


def test_a_run_is_not_lost_by_mistake(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert train("--out", out) == 0
    before = mm.AttentionRecord.load(out)
    assert train("--out", out, "--p", "3") == 2
    assert "add --overwrite" in capsys.readouterr().err
    assert_same_bits(mm.AttentionRecord.load(out), before)
    assert train("--out", out, "--p", "3", "--overwrite") == 0
    assert mm.AttentionRecord.load(out).settings.p == (3.0,)


def test_a_place_that_cannot_be_written_is_found_before_the_training(tmp_path, capsys, monkeypatch):
    def never(*arguments, **options):
        raise AssertionError("trained")

    monkeypatch.setattr(mm, "train_attention", never)
    (tmp_path / "file").write_text("")
    assert train("--out", str(tmp_path / "file" / "run")) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "PROBLEM is missing"),
        (["sphere"], "there is no problem 'sphere'"),
        (["imdb/large"], "there is no problem 'imdb/large'"),
        (["unit_spher"], "did you mean unit_sphere?"),
        (["unit_sphere", "--epochs", "3"], "Unknown option: --epochs"),
        (["unit_sphere", "--no-test"], "Unknown option: --no-test"),
        (["unit_sphere", "--steps", "-5"], "--steps: the value is -5: give"),
        (["unit_sphere", "--steps", "1.5"], "--steps: the value is '1.5'"),
        (["unit_sphere", "--steps", "1", "2"], "num_steps has shape (2,)"),
        (["unit_sphere", "--lr", "0"], "lr is 0.0: give a positive number"),
        (["unit_sphere", "--lr", "nan"], "--lr: the value is 'nan'"),
        (
            ["unit_sphere", "--step-rule", "adam"],
            'Invalid value "adam" for --step-rule. Choose from: "normalized"',
        ),
        (["unit_sphere", "--decay", "1"], "--decay needs --joint"),
        (["unit_sphere", "--decay", "0"], "--decay needs --joint"),
        (["unit_sphere", "--head-decay", "1"], "--head-decay needs --joint"),
        (["unit_sphere", "--joint", "--step-rule", "polyak"], "--joint has no --step-rule"),
        (["unit_sphere", "--joint", "--parameterization", "KQ"], "--joint trains W"),
        (["unit_sphere", "--parameterization", "KQ"], "KQ needs an --init-std above 0"),
        (["unit_sphere", "--rank", "2"], "--rank needs --parameterization KQ"),
        (["unit_sphere", "--max-lr", "2"], "--max-lr needs --step-rule polyak"),
        (["unit_sphere", "--eps", "1", "--step-rule", "constant"], "--eps needs"),
        (["unit_sphere", "--step-rule", "polyak", "--max-lr", "0"], "max_lr is 0.0"),
        (["unit_sphere", "--init-seeds", "1"], "--init-seeds needs an --init-std"),
        (["unit_sphere", "--init-std", "-1"], "std is -1.0"),
        (["unit_sphere", "--record", "0"], "record is 0"),
        (["unit_sphere", "--threads", "0"], "--threads: the value is 0"),
        (["--resume", "nowhere"], "nowhere holds no run"),
        (["--resume", "nowhere", "--p", "2"], "--p and --resume are given"),
        (["--resume", "nowhere", "--eps", "0"], "--eps and --resume are given"),
        (["unit_sphere", "--resume", "nowhere"], "PROBLEM and --resume are given"),
    ],
)
def test_a_wrong_input_is_one_line_and_exit_2(argv, message, capsys):
    assert main(["lab", "train", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_resuming_to_fewer_steps_is_refused_and_loses_nothing(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert train("--out", out) == 0
    before = mm.AttentionRecord.load(out)
    assert main(["lab", "train", "--resume", out, "--steps", "10"]) == 2
    assert "give at least that many" in capsys.readouterr().err
    assert main(["lab", "train", "--resume", out, "--record", "10"]) == 2
    assert "only if --steps says how far" in capsys.readouterr().err
    assert_same_bits(mm.AttentionRecord.load(out), before)
