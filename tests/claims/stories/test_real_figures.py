"""What is drawn from trainings on real data."""

from pathlib import Path

import numpy as np
import pytest
from training_arrays import METHODS, REVIEWS, TRAINING_EVIDENCE

from mirrormargin.claims.evidence import Evidence
from mirrormargin.claims.registry import STORIES
from mirrormargin.claims.stories.curves import find_first_steps, smooth
from mirrormargin.errors import ReportError
from mirrormargin.figures import Figure
from mirrormargin.figures.maps import draw_pictures
from mirrormargin.figures.palette import choose_looks, find_color
from mirrormargin.report.static import write_static

PRUNING = [name for name in TRAINING_EVIDENCE if name.startswith("pruning")]
CURVES = ["mnist", "cifar10", "mnli", "civil"]


def _build(name: str, **changes) -> Figure:
    arrays = {**TRAINING_EVIDENCE[name], **changes}
    kept = {key: value for key, value in arrays.items() if value is not None}
    (draw,) = STORIES[name].draw
    figure = draw(Evidence(name, {}, kept))
    assert figure is not None
    return figure


def _read_table(figure: Figure) -> list[dict[str, str]]:
    assert figure.table is not None
    return [dict(zip(figure.table.columns, row, strict=True)) for row in figure.table.rows]


@pytest.mark.parametrize(
    "name",
    [
        "token-selection",
        "fitted-mnist",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("imdb", "pruning-imdb", "mnist", "digits")
        ),
    ],
)
def test_each_kind_of_figure_can_be_a_file(name: str, tmp_path: Path) -> None:
    paths = write_static(_build(name), tmp_path / name)
    assert [path.suffix for path in paths] == [".svg", ".pdf", ".png"]
    assert all(path.stat().st_size > 5000 for path in paths)


def test_in_imdb_a_line_is_the_mean_over_seeds_and_other_trainings_are_rows() -> None:
    arrays, figure = TRAINING_EVIDENCE["imdb"], _build("imdb")
    for j, line in enumerate(figure.panels[0].series):
        np.testing.assert_allclose(line.y, arrays["validation"][j, 0].mean(axis=0))
        assert line.x[0] == 1
    rows = _read_table(figure)
    assert [row["p"] for row in rows[3:]] == [
        "1.1, imdb/tiny, seeds: 3",
        "2, imdb/tiny, seeds: 3",
        "3, imdb/small, seeds: 1",
    ]
    assert rows[3]["best on test data, as published"] == "84.10"
    assert rows[0]["best on test data, as published"].startswith(
        f"{arrays['best_test'][0].mean():.2f} ± "
    )


def test_without_other_trainings_imdb_has_a_row_for_each_exponent() -> None:
    figure = _build("imdb", more_p=None)
    assert [row["p"] for row in _read_table(figure)] == ["1.1", "2", "3"]
    assert "Other trainings" not in figure.caption


def test_optimizers_are_points_with_intervals_over_seeds() -> None:
    arrays, figure = TRAINING_EVIDENCE["imdb-optimizers"], _build("imdb-optimizers")
    (points,) = figure.panels[0].series
    assert figure.panels[0].x.ticks == tuple(arrays["optimizer"])
    np.testing.assert_allclose(points.y, arrays["selected_test"].mean(axis=1))
    assert points.low is not None
    assert (points.low < points.y).all()
    assert _read_table(figure)[4]["setting"] == "lr0.001"


def test_a_histogram_keeps_a_bin_that_stands_alone() -> None:
    panel = _build("imdb-weights").panels[1]
    line = panel.series[0].cut_to_scales(panel.x.scale, panel.y.scale)
    alone = line.y == 3
    assert alone[-2:].all()
    np.testing.assert_allclose(line.x[-2:], [58 * 0.005, 59 * 0.005])
    assert np.isnan(line.y[-4:-2]).all()


def test_counts_of_a_histogram_are_at_their_magnitudes() -> None:
    counts = TRAINING_EVIDENCE["imdb-weights"]["histogram"][1, 0]
    line = _build("imdb-weights").panels[0].series[1]
    middle = np.interp(0.0125, line.x, line.y)
    assert middle == counts[2]


def test_weights_tell_exact_zeros_from_underflow() -> None:
    row = _read_table(_build("imdb-weights"))[0]
    assert row["exact zeros"] == "1,200 / 1,100 / 900"
    assert row["underflowed"] == "15,321"


def test_token_selection_compares_with_untrained_models() -> None:
    arrays, figure = TRAINING_EVIDENCE["token-selection"], _build("token-selection")
    *points, baseline = figure.panels[0].series
    assert [bars.label for bars in figure.panels[2].series] == [
        "MirrorDescent p=1.1",
        "MirrorDescent p=2",
    ]
    for j, one in enumerate(points):
        assert one.y[0] == pytest.approx(arrays["score"][j].mean())
    np.testing.assert_allclose(baseline.y, arrays["untrained"].mean())
    for panel in figure.panels:
        assert all(one.high is None or one.high.max() <= 1 for one in panel.series)


def test_texts_are_shaded_from_the_least_attention_to_the_largest() -> None:
    arrays, texts = TRAINING_EVIDENCE["token-selection"], _build("token-selection").texts
    assert texts is not None
    assert texts.columns == ("MirrorDescent p=1.1", "MirrorDescent p=2")
    for i, (text, place) in enumerate(REVIEWS):
        for j, cell in enumerate(texts.rows[i]):
            assert list(cell.tokens) == text.split()
            assert (min(cell.weights), max(cell.weights)) == (0.0, 1.0)
            assert cell.marked == place
            assert cell.weights[np.argmax(arrays["weights"][j, i])] == 1.0


def test_attention_that_is_equal_everywhere_shades_nothing() -> None:
    even = np.full_like(TRAINING_EVIDENCE["token-selection"]["weights"], 0.1)
    texts = _build("token-selection", weights=even).texts
    assert texts is not None
    assert {weight for row in texts.rows for cell in row for weight in cell.weights} == {0.0}


@pytest.mark.parametrize("name", PRUNING)
def test_pruning_goes_from_half_the_weights_to_few(name: str) -> None:
    for panel in _build(name).panels:
        assert panel.x.is_reversed
        assert panel.x.marks == (50, 20, 10, 5, 2, 1, 0.5, 0.2)
        for one in panel.series:
            np.testing.assert_allclose([one.x.max(), one.x.min()], [50, 0.2])


def test_the_table_of_pruning_has_the_accuracies_at_its_shares() -> None:
    arrays, rows = TRAINING_EVIDENCE["pruning-imdb"], _read_table(_build("pruning-imdb"))
    assert [row["method"] for row in rows] == list(METHODS)
    assert rows[1]["98% removed"].startswith(f"{arrays['accuracy'][1, :, 6].mean():.2f} ± ")
    assert "setting" not in _read_table(_build("pruning-imdb", setting=None))[0]


def test_the_table_of_pruning_has_the_weights_needed() -> None:
    needed = TRAINING_EVIDENCE["pruning-imdb"]["needed"]
    rows = _read_table(_build("pruning-imdb"))
    assert rows[2]["weights needed"] == f"{100 * needed[2].mean():.2g}%"
    assert {row["of attention needed"] for row in rows} == {"5%"}


def test_a_method_that_loses_nothing_needs_at_most_what_was_measured() -> None:
    rows = _read_table(_build("pruning-imdb", needed=np.full((5, 3), 0.002)))
    assert {row["weights needed"] for row in rows} == {"at most 0.2%"}


def test_a_method_tuned_for_something_else_has_its_colour_and_another_style() -> None:
    plain, tuned = choose_looks(["AdamW", "AdamW for pruning"])
    assert plain.group == tuned.group
    assert plain.style != tuned.style


@pytest.mark.parametrize("name", CURVES)
def test_curves_say_when_the_last_loss_of_sgd_was_reached(name: str) -> None:
    arrays, figure = TRAINING_EVIDENCE[name], _build(name)
    rows = {row["optimizer"]: row for row in _read_table(figure)}
    key = "steps until SGD's last loss"
    first = [
        arrays["step"][np.flatnonzero(loss <= smooth(arrays["loss"][0])[s, -1])[0]]
        for s, loss in enumerate(smooth(arrays["loss"][1]))
    ]
    assert rows["SNGD"][key].startswith(f"{np.mean(first):,.0f} ± ")
    worse = {**arrays, "loss": arrays["loss"] + np.array([0.0, 5.0, 0.0, 0.0])[:, None, None]}
    assert _read_table(_build(name, **worse))[1][key] == "reached in 0 of 3"


def test_a_loss_that_is_never_reached_has_no_step() -> None:
    loss = np.array([[3.0, 2.0, 1.0], [3.0, 2.5, 2.2]])
    steps = find_first_steps(np.array([10, 20, 30]), loss, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(steps, [20, np.nan])


def test_the_vit_is_drawn_with_histograms_of_keys_queries_and_values() -> None:
    panel, *histograms = _build("cifar10-vit").panels
    assert [one.label for one in panel.series] == ["Adam", "MD p=1.1"]
    assert len(histograms) == 3


def test_pictures_have_the_image_on_top_and_patches_of_attention_below() -> None:
    arrays, panel = TRAINING_EVIDENCE["digits"], _build("digits").panels[-1]
    heat = panel.heat
    assert heat is not None
    assert panel.is_wide
    (values,) = heat.values
    image, attention = arrays["image"][2], arrays["attention"][1, 2]
    np.testing.assert_allclose(values[:8, 18:26], image / image.max())
    patches = values[22:30, 18:26].reshape(4, 2, 4, 2)
    np.testing.assert_allclose(patches[:, 0, :, 0], attention / attention.max())
    np.testing.assert_allclose(patches.max(axis=(1, 3)), patches.min(axis=(1, 3)))
    assert heat.dots is not None
    np.testing.assert_allclose(heat.dots[22:30, 18:26], image / image.max())
    assert "8 ✗" in [text for _, _, text in heat.notes]
    assert np.isnan(values[8:10]).all()


def test_patches_that_do_not_divide_an_image_are_refused() -> None:
    with pytest.raises(ReportError, match="8 pixels have 3 patches"):
        draw_pictures(
            ["a"],
            np.ones((1, 8, 8)),
            np.ones((1, 1, 3, 3)),
            np.zeros(1, dtype=np.int64),
            np.zeros((1, 1), dtype=np.int64),
        )


def test_methods_of_one_exponent_share_its_colour_and_differ_in_style() -> None:
    looks = choose_looks(["MirrorAdam p=1.1", "MirrorDescent p=1.1", "AdamW", "MirrorAdam p=2"])
    assert {look.group for look in looks[:2]} == {"p = 1.1"}
    seen = {(find_color(look.group), look.style) for look in looks}
    assert len(seen) == 4


def test_the_methods_that_are_compared_have_colours_of_their_own() -> None:
    names = [*METHODS, "MirrorAdam for pruning", "MirrorAdam + L1", "AdamW for pruning"]
    looks = choose_looks([*names, "gradual pruning to 95%", "gradual pruning to 98%"])
    assert len({(find_color(look.group), look.style) for look in looks}) == len(looks)
    assert len({look.group for look in looks}) == 5
    assert {look.style for look in choose_looks(["SGD", "SNGD", "Adam"])} == {"line"}
