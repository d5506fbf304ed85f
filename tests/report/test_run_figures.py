"""Figures of run folders, from what the library itself saves."""

from pathlib import Path

import numpy as np
import pytest

import mirrormargin as mm
from mirrormargin.errors import ReportError, TrainingInterrupted
from mirrormargin.figures import Figure
from mirrormargin.report import write_report
from mirrormargin.report.contents import arrange_contents, read_sources

PROBLEMS = [mm.synthetic.unit_sphere(seed) for seed in (1, 2)]


def _build(folder: Path) -> tuple[Figure, ...]:
    return arrange_contents(read_sources([folder])).figures


@pytest.fixture(scope="module")
def record():
    return mm.train_attention(PROBLEMS, p=[1.75, 3], num_steps=[40, 60], lr=0.1, keep_path=True)


def test_a_training_has_curves_ends_and_maps(record, tmp_path: Path) -> None:
    record.save(tmp_path / "mine")
    curves, maps, matrices = _build(tmp_path)
    assert (curves.name, maps.name, matrices.name) == (
        "training-mine",
        "attention-mine",
        "matrices-mine",
    )
    assert [panel.title for panel in curves.panels] == ["direction", "norm", "loss"]
    norm = curves.panels[1].series[0]
    assert norm.label == "p = 1.75"
    expected = np.median(record.norm[:, 0, 0], axis=0)
    steps = record.steps[0, 0, 0]
    np.testing.assert_allclose(norm.y, expected[np.unique(steps, return_index=True)[1]])
    assert curves.table is not None
    assert [row[0] for row in curves.table.rows] == ["1.75", "3"]
    optimal = np.stack([problem.optimal_tokens for problem in PROBLEMS])
    share = (record.final_selection[:, 0, 0] == optimal).mean()
    assert curves.table.rows[0][5] == f"{share:.1%}"
    heat = maps.panels[0].heat
    assert heat is not None
    np.testing.assert_allclose(heat.values[-1], PROBLEMS[0].attention(record.W[0, 0, 0]))


def test_a_training_without_path_or_target_has_what_is_there(tmp_path: Path) -> None:
    record = mm.train_attention(PROBLEMS[0], p=2, num_steps=20, target=None)
    record.save(tmp_path / "mine")
    curves, maps = _build(tmp_path)
    assert [panel.title for panel in curves.panels] == ["norm", "loss"]
    assert maps.panels[0].heat is not None
    assert maps.panels[0].heat.frame_labels == ("step 20",)


def _interrupt(folder: Path, **options) -> None:
    def stop(done: int, total: int) -> None:
        if done > 100:
            raise KeyboardInterrupt

    with pytest.raises(TrainingInterrupted) as caught:
        mm.train_attention(
            PROBLEMS[0], p=[2, 3], num_steps=[500, 800], lr=0.1, progress=stop, **options
        )
    caught.value.record.save(folder)


def test_an_interrupted_training_says_how_to_resume_it_and_why_there_is_no_divergence(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "my run"
    _interrupt(folder)
    table = _build(folder)[0].table
    assert table is not None
    for row, total in zip(table.rows, (500, 800), strict=True):
        assert row[2] == "needs the tokens selected in the end"
        assert row[6] == (
            f"interrupted at step {row[1]} of {total}; resume it with mirrormargin lab train"
            f" --resume '{folder}'"
        )
        assert 0 < int(row[1]) < total


def test_without_a_target_an_interrupted_training_does_not_promise_a_divergence(
    tmp_path: Path,
) -> None:
    _interrupt(tmp_path / "mine", target=None)
    table = _build(tmp_path)[0].table
    assert table is not None
    assert {row[2] for row in table.rows} == {"–"}


def test_a_complete_training_is_not_called_interrupted(record, tmp_path: Path) -> None:
    record.save(tmp_path / "mine")
    table = _build(tmp_path)[0].table
    assert table is not None
    assert [row[6] for row in table.rows] == ["all steps"] * 2


def test_a_training_deep_down_is_named_by_its_place_and_its_files_lie_flat(
    record, tmp_path: Path
) -> None:
    record.save(tmp_path / "sphere" / "first")
    curves, maps, matrices = _build(tmp_path)
    assert curves.title == "Training: sphere/first"
    assert (curves.name, maps.name) == ("training-sphere-first", "attention-sphere-first")
    assert matrices.name == "matrices-sphere-first"


def test_flows_share_a_figure_with_one_bound_for_each_exponent(tmp_path: Path) -> None:
    for seed, problem in enumerate(PROBLEMS, start=1):
        for p in (1.75, 2.0):
            mm.mirror_flow(problem, p, decades=8).save(tmp_path / f"seed-{seed}-p-{p:g}")
    (figure,) = _build(tmp_path)
    labels = [series.label for series in figure.panels[0].series]
    assert labels[:4] == [f"p = {p}, seed-{seed}" for seed in (1, 2) for p in ("1.75", "2")]
    assert labels.count("proven class, p = 1.75") == labels.count("proven class, p = 2") == 1
    assert figure.table is not None
    assert figure.table.rows[0][0] == "seed-1-p-1.75"


def test_paths_are_drawn_against_their_radii(tmp_path: Path) -> None:
    path = mm.regularization_path(PROBLEMS[0], 2.0, radii=[1.0, 5.0, 25.0])
    path.save(tmp_path / "plain")
    joint = mm.joint_regularization_path(
        mm.synthetic.joint_toy(), 2.0, radii=[1.0, 4.0], head_radii=[1.0, 4.0]
    )
    joint.save(tmp_path / "joint")
    plain_figure, joint_figure = _build(tmp_path)
    np.testing.assert_array_equal(plain_figure.panels[0].series[0].x, [1, 5, 25])
    np.testing.assert_allclose(plain_figure.panels[1].series[0].y, path.margin)
    np.testing.assert_allclose(joint_figure.panels[1].series[0].y, joint.head_divergence)


def test_a_run_that_lacks_an_array_is_refused(record, tmp_path: Path) -> None:
    from mirrormargin.runs import read_run, write_run

    record.save(tmp_path / "mine")
    document, arrays = read_run(tmp_path / "mine", "attention training")
    del arrays["norm"]
    document = {"settings": document["settings"], "losses": document["losses"]}
    write_run(tmp_path / "mine", "attention training", document, arrays)
    with pytest.raises(ReportError, match="norm"):
        write_report([tmp_path / "mine"], tmp_path / "r.html")
