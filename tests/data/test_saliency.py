"""Which pixels stand out: a square on grey, nothing on a flat image, any size and type; maps from files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from segue.core.errors import UserError
from segue.data.saliency import check_maps, read_map, salient_pixels


def grey(batch: int = 1, height: int = 32, width: int = 40, value: int = 100) -> Tensor:
    return torch.full((batch, 3, height, width), value, dtype=torch.uint8)


@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (200, 40, 40)])
def test_square_on_grey_is_found(colour: tuple[int, int, int]) -> None:
    images = grey()
    images[0, :, 10:20, 15:25] = torch.tensor(colour)[:, None, None]
    salient = salient_pixels(images)
    assert salient.shape == (1, 32, 40) and salient.dtype == torch.bool
    assert salient[0, 11:19, 16:24].all(), "the square but for its blurred edge"
    outside = torch.ones(32, 40, dtype=torch.bool)
    outside[8:22, 13:27] = False
    assert not salient[0][outside].any()


def test_frame_is_found_up_to_the_border() -> None:
    images = grey(value=20)
    images[0, :, :6, :6] = 240
    salient = salient_pixels(images)[0]
    assert salient[:5, :5].all() and not salient[8:, 8:].any()


@pytest.mark.parametrize("value", [0, 1, 100, 201, 255])
def test_flat_image_has_nothing_that_stands_out(value: int) -> None:
    assert not salient_pixels(grey(2, 33, 47, value)).any()


def test_images_of_a_batch_are_looked_at_alone() -> None:
    images = torch.cat([grey(value=100), grey(value=250), grey(value=100)])
    images[2, :, 4:12, 4:12] = 180
    salient = salient_pixels(images)
    assert not salient[:2].any() and salient[2, 5:11, 5:11].all()
    assert torch.equal(salient[2:], salient_pixels(images[2:]))


def test_distance_is_twice_the_average_of_the_image() -> None:
    """Left to right: what lies twice as far from the mean as the average pixel, for a ramp of one colour."""
    ramp = torch.zeros(1, 3, 8, 400)
    ramp[:, 1] = torch.arange(400.0)
    salient = salient_pixels(ramp)[0]
    distance = (ramp[0, 1] - ramp[0, 1].mean()).abs()
    assert not salient.any()  # at most twice: a ramp's ends are just there
    ramp[..., 390:] += 300
    salient, distance = salient_pixels(ramp)[0], (ramp[0] - ramp[0].mean((1, 2), keepdim=True)).norm(dim=0)
    inner = [*range(4, 386), *range(393, 396)]
    assert torch.equal(salient[:, inner], (distance > 2 * distance.mean())[:, inner])
    assert salient.any() and not salient.all()


@pytest.mark.parametrize("size", [(3, 3), (5, 64), (17, 31), (128, 96)])
def test_any_size(size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, *size), generator=generator, dtype=torch.uint8)
    assert salient_pixels(images).shape == (2, *size)


def test_type_and_range_of_the_images_do_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 24, 24), generator=generator, dtype=torch.uint8)
    expected = salient_pixels(images)
    assert expected.any() and not expected.all()
    assert torch.equal(salient_pixels(images.float()), expected)
    assert torch.equal(salient_pixels(images.double()), expected)
    differing = (salient_pixels(images.float() / 256) != expected).sum()
    assert differing == 0  # a power of two: the same roundings


def test_half_precision_around_it_does_not_count() -> None:
    images = torch.full((1, 3, 16, 16), 200.0)
    images[0, :, 4:8, 4:8] = 200.4  # one number for both in bfloat16
    expected = salient_pixels(images)
    assert expected[0, 5:7, 5:7].all()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(salient_pixels(images), expected)


# Maps from files


def test_map_is_salient_from_half_of_the_grey_on(tmp_path: Path) -> None:
    values = np.array([[0, 127, 128], [255, 1, 200]], dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / "a.png")
    found = read_map(tmp_path, "a", (2, 3))
    assert found.dtype == np.uint8 and found.tolist() == [[0, 0, 1], [1, 0, 1]]


def test_map_of_another_size_is_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png is 3 x 2 pixels, but its image is 4 x 2"):
        read_map(tmp_path, "a", (2, 4))


def test_missing_maps_are_counted(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((2, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    check_maps(tmp_path, ["a", "a"])
    with pytest.raises(UserError, match=r"b\.png is missing \(2 of them\)"):
        check_maps(tmp_path, ["a", "b", "c"])


def test_map_of_zeros_and_ones_is_refused(tmp_path: Path) -> None:
    """It would be read as one in which nothing stands out."""
    for name, values in {"bits": [[0, 1]], "dark": [[0, 0]]}.items():
        Image.fromarray(np.array(values, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    with pytest.raises(UserError, match=r"bits\.png holds 0 and 1"):
        read_map(tmp_path, "bits", (1, 2))
    assert read_map(tmp_path, "dark", (1, 2)).tolist() == [[0, 0]]


def test_map_is_grey(tmp_path: Path) -> None:
    Image.new("RGB", (2, 1), (255, 255, 255)).save(tmp_path / "colour.png")
    with pytest.raises(UserError, match=r"colour\.png is of mode RGB"):
        read_map(tmp_path, "colour", (1, 2))
    Image.new("1", (2, 1), 1).save(tmp_path / "bits.png")
    assert read_map(tmp_path, "bits", (1, 2)).tolist() == [[1, 1]]
