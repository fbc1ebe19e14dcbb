"""Image and labels are transformed together: same place, same pixel centre, no new labels."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from segue.data.batches.step_data import _seeded
from segue.data.transforms import CropOn, Labels, Picture, apply, train_transform
from segue.data.transforms import test_transform as for_testing


def paired(height: int, width: int, block: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of labels 3, 4, 7, 200; the picture shows each label as its own grey."""
    rows, columns = np.indices((height, width)) // block
    labels = np.array([3, 4, 7, 200], dtype=np.uint8)[(rows + 2 * columns) % 4]
    return np.repeat(labels[..., None], 3, axis=2), labels


def ramps(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A picture that shows where each pixel comes from (x in red, y in green), and x and y as labels."""
    y, x = np.indices((height, width)).astype(np.uint8)
    return np.stack([x, y, np.zeros_like(x)], axis=2), x, y


def train(
    crop: int, image: np.ndarray, labels: np.ndarray, seed: int, scale=(0.3, 2.0)
) -> tuple[Tensor, Tensor]:
    with _seeded(seed):
        return apply(train_transform(crop, scale), image, labels)


def test_pixels_are_the_same_on_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision asks what the processor can do; crops must not depend on the answer."""
    noise = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    found = []
    for capability in ("AVX512", "DEFAULT"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda answer=capability: answer)
        maps = noise, noise[..., 0]
        found.append([train(64, *maps, seed=0)[0], apply(for_testing(40), *maps)[0]])
    assert all(map(torch.equal, *found))
    by_pil = np.asarray(Image.fromarray(noise).resize((40, 51), Image.Resampling.BILINEAR), dtype=int)[6:46]
    assert np.abs(found[0][1].permute(1, 2, 0).numpy() - by_pil).max() <= 1


# Alike for image and labels


@pytest.mark.parametrize("size", [(90, 70), (50, 120), (33, 33)])
@pytest.mark.parametrize("seed", range(5))
def test_training_keeps_image_and_labels_aligned(size: tuple[int, int], seed: int) -> None:
    image, labels = paired(*size)
    new_image, new_labels = train(64, image, labels, seed)
    # away from the borders of blocks, where the image blends, the picture still shows the label
    same = (new_image[0] == new_labels).float().mean()
    assert same > 0.6, f"{same:.2f} of the pixels"


@pytest.mark.parametrize("crop", [40, 64, 96, 128])
@pytest.mark.parametrize("size", [(90, 70), (70, 90), (80, 80)])
def test_labels_lie_under_the_pixels_they_belong_to(size: tuple[int, int], crop: int) -> None:
    """No shift: on average a label is the place that the image shows, to a tenth of a pixel."""
    image, x, y = ramps(*size)
    for transform, seeds in ((for_testing(crop), [0]), (train_transform(crop, (0.3, 1.0)), range(6))):
        for seed in seeds:
            for channel, labels in enumerate((x, y)):
                with _seeded(seed):
                    new_image, new_labels = apply(transform, image, labels)
                shift = (new_labels.double() - new_image[channel].double()).mean().item()
                assert abs(shift) < 0.1, f"{shift:.2f} pixels along {'xy'[channel]}"


@pytest.mark.parametrize(("size", "crop"), [((90, 70), 64), ((70, 90), 33), ((50, 50), 128), ((60, 60), 60)])
def test_labels_are_resized_as_pil_does(size: tuple[int, int], crop: int) -> None:
    """The published numbers come from PIL's nearest neighbour."""
    _, labels = paired(*size)
    height, width = (crop * side // min(size) for side in size)
    resized = np.asarray(Image.fromarray(labels).resize((width, height), Image.Resampling.NEAREST))
    top, left = round((height - crop) / 2), round((width - crop) / 2)
    expected = resized[top : top + crop, left : left + crop]
    _, new_labels = apply(for_testing(crop), np.zeros((*size, 3), dtype=np.uint8), labels)
    assert (new_labels.numpy() == expected).mean() > 0.99


def test_flip_takes_both() -> None:
    image, x, _ = ramps(64, 64)
    directions = set()
    for seed in range(20):
        new_image, new_labels = train(64, image, x, seed, (1.0, 1.0))
        across = np.diff(new_labels[0].int().numpy())
        assert (across >= 0).all() or (across <= 0).all()
        red = np.diff(new_image[0, 0].int().numpy())
        assert np.sign(across.sum()) == np.sign(red.sum())
        directions.add(int(np.sign(across.sum())))
    assert directions == {-1, 1}


# What comes out


@pytest.mark.parametrize("crop", [16, 64, 100])
@pytest.mark.parametrize("size", [(90, 70), (40, 200), (16, 16), (1, 1), (3, 50)])
def test_uint8_squares_of_the_crop_size(size: tuple[int, int], crop: int) -> None:
    image, labels = paired(*size)
    for new_image, new_labels in (train(crop, image, labels, 0), apply(for_testing(crop), image, labels)):
        assert new_image.shape == (3, crop, crop) and new_labels.shape == (crop, crop)
        assert new_image.dtype == new_labels.dtype == torch.uint8
        assert type(new_image) is type(new_labels) is Tensor


@pytest.mark.parametrize("seed", range(10))
def test_labels_are_never_blended(seed: int) -> None:
    image, labels = paired(97, 61, block=3)
    for _, new_labels in (train(50, image, labels, seed), apply(for_testing(50), image, labels)):
        assert set(new_labels.unique().tolist()) <= {3, 4, 7, 200}


def test_image_is_blended() -> None:
    image, labels = paired(97, 61, block=3)
    new_image, _ = apply(for_testing(50), image, labels)
    assert len(new_image.unique()) > 20


@pytest.mark.parametrize("size", [(64, 64), (120, 40), (40, 120)])
def test_training_never_zooms_out(size: tuple[int, int]) -> None:
    """A crop by area up to twice the image: no pixel comes from outside, none is made up."""
    image, x, y = ramps(*size)
    seen_whole = False
    for seed in range(40):
        for labels, limit in ((x, size[1]), (y, size[0])):
            _, new = train(32, image, labels + 1, seed, (0.5, 2.0))
            assert new.min() >= 1 and new.max() <= limit
            span = int(new.max()) - int(new.min()) + 1
            seen_whole |= span >= 0.9 * limit
            steps = new.int().diff(dim=1 if labels is x else 0).abs()
            assert (steps.max() - steps.min()) <= 1  # even steps: no border is repeated
    assert seen_whole


def test_crops_differ_from_seed_to_seed() -> None:
    image, labels = paired(90, 70)
    crops = [train(32, image, labels, seed) for seed in (0, 0, 1)]
    assert torch.equal(crops[0][0], crops[1][0]) and torch.equal(crops[0][1], crops[1][1])
    assert not torch.equal(crops[0][1], crops[2][1])


@pytest.mark.parametrize("size", [(64, 128), (128, 64)])
def test_testing_takes_the_centre_of_the_shorter_side(size: tuple[int, int]) -> None:
    image, x, y = ramps(*size)
    for labels, length in ((x, size[1]), (y, size[0])):
        new_image, new_labels = apply(for_testing(64), image, labels)
        along = new_labels[0] if labels is x else new_labels[:, 0]
        start = (length - 64) // 2
        assert along.tolist() == list(range(start, start + 64))  # the shorter side is 64 already
        assert torch.equal(new_image[0 if labels is x else 1], new_labels)


def test_testing_scales_by_the_shorter_side() -> None:
    image, x, _ = ramps(50, 100)
    _, new = apply(for_testing(100), image, x)  # 100 x 200, of which the middle 100
    assert new[0].tolist() == [25 + i // 2 for i in range(100)]


def test_inputs_are_left_alone() -> None:
    image, labels = paired(40, 30)
    kept = image.copy(), labels.copy()
    train(20, image, labels, 0)
    assert np.array_equal(image, kept[0]) and np.array_equal(labels, kept[1])


# Crops on new classes


SPOTS = {(3, 5): 7, (58, 77): 7, (30, 2): 8}
"""single pixels of new labels in an image of 60 x 80"""


def placed(seed: int, share: float, labels: range = range(7, 9)) -> tuple[set[int], Tensor]:
    """Labels in the source of a crop, and the crop itself."""
    image, x, y = ramps(60, 80)
    mask = np.zeros((60, 80), np.uint8)
    for place, label in SPOTS.items():
        mask[place] = label
    with _seeded(seed):
        crop = (
            train_transform(32, (0.1, 0.3), CropOn(labels, share))
            if share
            else train_transform(32, (0.1, 0.3))
        )
        state = torch.get_rng_state()
        found = apply(crop, image, mask, x, y)
        torch.set_rng_state(state)
        params = crop.transforms[0].make_params([Labels(torch.from_numpy(mask))])
    top, left = params["top"], params["left"]
    assert 0 <= top <= 60 - params["height"] and 0 <= left <= 80 - params["width"]
    source = mask[top : top + params["height"], left : left + params["width"]]
    return set(np.unique(source).tolist()) - {0}, found[0]


def test_placed_crops_contain_a_new_class() -> None:
    seen = [placed(seed, 1.0)[0] for seed in range(60)]
    assert all(seen), "each shows one"
    assert sum(8 in each for each in seen) > 20, "a label with fewer pixels is met as often"
    assert sum(bool(placed(seed, 0)[0]) for seed in range(60)) < 40, "by chance it is often missed"


def test_share_of_placed_crops_follows_from_the_seed() -> None:
    seen = [placed(seed, 0.5)[0] for seed in range(60)]
    assert 30 <= sum(map(bool, seen)) < 60, "more than by chance, fewer than all"
    assert all(torch.equal(placed(seed, 0.5)[1], placed(seed, 0.5)[1]) for seed in range(5))


def test_images_without_a_new_class_are_cropped_anywhere() -> None:
    """Sizes and places are those of plain crops; void is no class."""
    for seed in range(10):
        image, labels = np.zeros((50, 70, 3), np.uint8), np.full((50, 70), 255, np.uint8)
        found = []
        for on in (None, CropOn(range(3, 5), 1.0)):
            with _seeded(seed):
                crop = train_transform(32, (0.1, 0.3), on).transforms[0]
                found.append(
                    crop.make_params(
                        [Picture(torch.from_numpy(image).permute(2, 0, 1)), Labels(torch.from_numpy(labels))]
                    )
                )
        assert found[0] == found[1]
