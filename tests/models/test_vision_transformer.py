"""The vision transformer: paper sizes, bytes and floats, patches, shapes that are refused."""

import pytest
import torch

from mirrormargin.errors import ModelError
from mirrormargin.models import VisionTransformer

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SMALL = {"size": 8, "mean": MEAN, "std": STD, "patch": 4, "width": 12, "num_layers": 2}
SMALL |= {"num_heads": 3, "hidden": 16}


def make_model(num_classes=10, **options):
    torch.manual_seed(0)
    return VisionTransformer(num_classes, **(SMALL | options)).double().eval()


def make_images(size=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (4, 3, size, size), generator=generator, dtype=torch.uint8)


def test_paper_sizes_are_145_tokens_of_48_pixel_images():
    model = VisionTransformer(10, size=32, mean=MEAN, std=STD, upscale=48, init_std=0.02).eval()
    assert model.position.shape == (145, 512)
    assert model.embedding.weight.shape == (512, 48)
    assert len(model.blocks) == 6
    block = model.blocks[0]
    assert block.num_heads == 8
    assert block.expand.weight.shape == (512, 512)
    assert block.norm_first
    with torch.no_grad():
        assert model.attention(make_images(32)[:1]).shape == (1, 6, 8, 145, 145)
        assert model(make_images(32)[:1]).shape == (1, 10)


def test_bytes_and_floats_agree():
    model, images = make_model(), make_images()
    assert torch.equal(model(images), model(images.double()))


def test_images_are_normalised_with_the_mean_and_std_of_their_channels():
    standard = make_model(mean=(0.0,) * 3, std=(1 / 255,) * 3)
    model, images = make_model(), make_images().double()
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in (MEAN, STD))
    torch.testing.assert_close(
        model(images), standard((images / 255 - mean) / std), rtol=1e-5, atol=1e-5
    )


def test_tokens_are_patches_by_rows():
    model, images = make_model(), make_images().double()
    model.mean.zero_()
    model.std.fill_(1)
    tokens = model._embed(images)
    for number, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)], 1):
        patch = images[:, :, row : row + 4, column : column + 4].flatten(1)
        wanted = model.embedding(patch) + model.position[number]
        torch.testing.assert_close(tokens[:, number], wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(tokens[:, 0], (model.cls + model.position[0]).expand(4, -1))


def test_short_cut_equals_the_whole_last_block():
    model, images = make_model(), make_images()
    torch.testing.assert_close(model(images), model(images, whole=True), rtol=0, atol=1e-12)


def test_two_classes_get_one_logit():
    assert make_model(2)(make_images()).shape == (4,)
    assert make_model(2)(make_images()[:1]).shape == (1,)


def test_attention_rows_sum_to_one():
    maps = make_model().attention(make_images())
    assert maps.shape == (4, 2, 3, 5, 5)
    torch.testing.assert_close(maps.sum(-1), torch.ones(4, 2, 3, 5, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 9), (3, 16, 16)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ModelError, match=r"\(3, 8, 8\)"):
        make_model()(torch.zeros(2, *shape))


@pytest.mark.parametrize("change", [{"patch": 3}, {"upscale": 10}, {"num_heads": 5}])
def test_sizes_that_do_not_fit_are_refused(change):
    with pytest.raises(ModelError):
        make_model(**change)


def test_saved_model_needs_nothing_else():
    model, other = make_model(), make_model(mean=(0.1,) * 3, std=(0.9,) * 3)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(make_images()), model(make_images()))
