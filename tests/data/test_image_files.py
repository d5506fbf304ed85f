"""Images of one's own: a folder of folders."""

import numpy as np
import pytest

from mirrormargin.data import load_data
from mirrormargin.errors import DataError, TrainingError
from mirrormargin.training.building import build_model
from mirrormargin.training.configurations import find_configuration

Image = pytest.importorskip("PIL.Image")


def write_images(folder, count=10, shape=(6, 4, 3)):
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full(shape, 100 * label + number, np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def test_folders_become_classes(tmp_path):
    folder = write_images(tmp_path / "animals")
    (folder / "dog" / "notes.txt").write_text("not an image")
    data = load_data(folder)
    assert (data.kind, data.classes) == ("image", ("cat", "dog"))
    assert [len(split) for split in (data.train, data.validation, data.test)] == [16, 2, 2]
    assert data.train.inputs.shape == (16, 3, 6, 4)
    seen = []
    for split in (data.train, data.validation, data.test):
        values = split.inputs[:, 0, 0, 0].tolist()
        assert [value >= 100 for value in values] == (split.labels == 1).tolist()
        seen += values
    assert sorted(seen) == [*range(10), *range(100, 110)]
    assert data.sha256.keys() == {f"{name}/{n}.png" for name in ("cat", "dog") for n in range(10)}


def test_mean_and_deviation_are_those_of_the_training_images(tmp_path):
    data = load_data(write_images(tmp_path / "animals"))
    scaled = data.train.inputs.double() / 255
    assert data.mean == pytest.approx(scaled.mean((0, 2, 3)).tolist(), abs=1e-12)
    assert data.std == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist(), abs=1e-12)


def test_grey_images_have_one_channel(tmp_path):
    data = load_data(write_images(tmp_path / "animals", shape=(6, 4)))
    assert data.train.inputs.shape == (16, 1, 6, 4)
    assert data.mean is not None
    assert len(data.mean) == 1


def test_one_coloured_image_makes_all_coloured(tmp_path):
    folder = write_images(tmp_path / "animals", shape=(6, 4))
    Image.fromarray(np.full((6, 4, 3), 200, np.uint8)).save(folder / "cat" / "new.png")
    assert load_data(folder).train.inputs.shape[1:] == (3, 6, 4)


def test_the_same_pixels_count_once(tmp_path):
    folder = write_images(tmp_path / "animals")
    Image.open(folder / "cat" / "0.png").save(folder / "cat" / "copy.bmp")
    data = load_data(folder)
    assert len(data.train) + len(data.validation) + len(data.test) == 20
    assert "Dropped: 1 images" in data.note


def test_an_image_of_another_size_is_named(tmp_path):
    folder = write_images(tmp_path / "animals")
    Image.new("RGB", (5, 5)).save(folder / "dog" / "odd.png")
    with pytest.raises(DataError, match=r"odd.png has 5 x 5 pixels, but .*0.png 4 x 6"):
        load_data(folder)


def test_an_image_of_16_bits_is_refused(tmp_path):
    folder = write_images(tmp_path / "animals")
    Image.fromarray(np.full((6, 4), 3000, np.uint16)).save(folder / "dog" / "deep.png")
    with pytest.raises(DataError, match=r"deep.png has more than 8 bits .* save it with 8"):
        load_data(folder)


def test_a_model_is_not_built_for_images_that_are_not_square(tmp_path):
    data = load_data(write_images(tmp_path / "animals"))
    with pytest.raises(TrainingError, match=r"have 4 x 6 pixels: .* crop or resize"):
        build_model(find_configuration("digits/tiny"), data)


@pytest.mark.parametrize("contents", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_file_that_is_no_image_is_named(tmp_path, contents):
    folder = write_images(tmp_path / "animals")
    (folder / "cat" / "bad.png").write_bytes(contents)
    with pytest.raises(DataError, match=r"bad.png cannot be read as an image"):
        load_data(folder)


def test_a_cut_file_is_named(tmp_path):
    folder = write_images(tmp_path / "animals")
    path = folder / "cat" / "new.png"
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(DataError, match=r"new.png cannot be read as an image"):
        load_data(folder)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no images: there should be a folder for each class"):
        load_data(tmp_path)


def test_options_of_texts_are_refused_for_images(tmp_path):
    with pytest.raises(DataError, match="are for texts"):
        load_data(write_images(tmp_path / "animals"), length=128)
