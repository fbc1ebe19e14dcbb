"""Reading image and mask files, and the sentence for each thing that can be wrong with them."""

import os
import pickle
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core import ordinary
from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data.images import BadFile, check_image, check_pair, count_values, read_image, read_mask

CLASSES = ClassTable("pets", {1: "cat", 2: "dog", 3: "fish"})


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    Image.fromarray(noise(30, 40, 3)).save(path, quality=90)
    return path


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    return write(tmp_path / "photo.png", np.tile(np.array([0, 1, 2, 3, 255], dtype=np.uint8), (30, 8)))


def write(path: Path, pixels: np.ndarray) -> Path:
    Image.fromarray(pixels).save(path)
    return path


def refusal(function, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        function(*arguments)
    return str(caught.value)


# What is right


def test_image_is_rgb_whatever_the_file_holds(tmp_path: Path) -> None:
    pixels = noise(6, 4, 3)
    assert np.array_equal(read_image(write(tmp_path / "rgb.png", pixels)), pixels)
    grey = read_image(write(tmp_path / "grey.png", pixels[..., 0]))
    assert grey.shape == (6, 4, 3) and grey.dtype == np.uint8
    assert np.array_equal(grey, np.repeat(pixels[..., :1], 3, axis=2))


def test_mask_gives_indices_and_never_colours(tmp_path: Path) -> None:
    ids = noise(6, 4)
    image = Image.fromarray(ids)
    image.putpalette([(7 * i) % 256 for i in range(768)])
    image.save(tmp_path / "palette.png")
    for path in (tmp_path / "palette.png", write(tmp_path / "grey.png", ids)):
        read = read_mask(path)
        assert read.dtype == np.uint8 and np.array_equal(read, ids)


def test_usable_pair_gives_the_ids_present(image: Path, mask: Path) -> None:
    content = check_pair(image, mask, CLASSES)
    assert content.size == (30, 40) and content.pixels.shape == (256,)
    assert {i: n for i, n in enumerate(content.pixels) if n} == dict.fromkeys([0, 1, 2, 3, 255], 240)
    assert check_image(image) == (40, 30)


# What is wrong


def test_missing_mask(image: Path, tmp_path: Path) -> None:
    message = refusal(check_pair, image, tmp_path / "none.png", CLASSES)
    assert f"{image} has no mask" in message and f"{tmp_path / 'none.png'} is missing" in message


def test_missing_image(mask: Path, tmp_path: Path) -> None:
    path = tmp_path / "none.jpg"
    for arguments in ((check_pair, path, mask, CLASSES), (read_image, path), (read_mask, path)):
        assert refusal(*arguments) == f"{path} is missing."


def test_size_of_image_and_mask_differ(image: Path, tmp_path: Path) -> None:
    turned = write(tmp_path / "turned.png", np.zeros((40, 30), dtype=np.uint8))
    message = refusal(check_pair, image, turned, CLASSES)
    assert f"{turned} is 30 x 40 pixels, but its image {image} is 40 x 30" in message


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_truncated_jpg(image: Path, mask: Path, share: float) -> None:
    content = image.read_bytes()
    image.write_bytes(content[: int(share * len(content))])
    for arguments in ((check_pair, image, mask, CLASSES), (read_image, image), (check_image, image)):
        message = refusal(*arguments)
        assert str(image) in message and "cannot be read" in message


def test_truncated_mask(image: Path, mask: Path) -> None:
    mask.write_bytes(mask.read_bytes()[:-30])
    message = refusal(check_pair, image, mask, CLASSES)
    assert str(mask) in message and "truncated or damaged" in message


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"])
def test_file_that_is_no_image(image: Path, mask: Path, content: bytes) -> None:
    for path in (image, mask):
        kept = path.read_bytes()
        path.write_bytes(content)
        assert refusal(check_pair, image, mask, CLASSES).startswith(
            f"{path} is not an image that can be read"
        )
        path.write_bytes(kept)


def test_folder_with_the_name_of_an_image(mask: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder.jpg"
    folder.mkdir()
    for arguments in ((read_image, folder), (read_mask, folder), (check_pair, folder, mask, CLASSES)):
        assert refusal(*arguments) == f"{folder} cannot be read: Is a directory."


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipe_and_endless_device_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe.png", tmp_path / "zero.png"):
        for function in (read_image, read_mask, check_image):
            assert refusal(function, path) == f"{path} cannot be read: it is not an ordinary file."


def test_file_without_permission(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")  # root may read every file

    monkeypatch.setattr(ordinary, "_without_waiting", refuse)
    for function in (read_image, read_mask, check_image):
        assert refusal(function, image) == f"{image} cannot be read: Permission denied."


def test_error_passes_from_process_to_process(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as caught:
        read_mask(tmp_path / "none.png")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is BadFile and copy.kind == "missing" and str(copy) == str(caught.value)


def test_name_that_no_file_can_have() -> None:
    assert "cannot be read" in refusal(read_image, Path("a\0b.png"))


def test_very_large_file_is_not_read(image: Path) -> None:
    with open(image, "r+b") as file:
        file.truncate(2**30 + 1)  # a hole: it needs no room on the disk
    assert refusal(read_image, image) == f"{image} cannot be read: it is too large (1024 MiB)."


@pytest.mark.parametrize("size", [(4001, 40), (40, 4001)])
def test_thread_of_pixels_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    image, mask = tmp_path / "image.png", tmp_path / "mask.png"
    for path, mode in ((image, "RGB"), (mask, "L")):
        Image.new(mode, size).save(path)
    with pytest.raises(BadFile, match="too thin for a square crop"):
        check_pair(image, mask, CLASSES)


def test_content_decides_and_not_the_suffix(image: Path, mask: Path, tmp_path: Path) -> None:
    wrong = [image.rename(tmp_path / "photo.png.tif"), mask.rename(tmp_path / "photo.jpg")]
    assert check_pair(*wrong, CLASSES).size == (30, 40)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 5), (8, 8), (31, 33)])
def test_values_are_counted_exactly(shape: tuple[int, int]) -> None:
    for mask in (noise(*shape), noise(*shape) // 100, np.full(shape, 255, np.uint8), noise(*shape).T):
        counts = count_values(mask)
        assert np.array_equal(counts, np.bincount(mask.ravel(), minlength=256)) and counts.sum() == mask.size


def test_meaning_of_mask_values_is_counted_by_class(image: Path, mask: Path) -> None:
    class_ids = np.full(256, -1)
    class_ids[[0, 1, 2, 3, 255]] = [0, 2, 2, 7, 255]
    content = check_pair(image, mask, CLASSES, class_ids)
    assert {i: n for i, n in enumerate(content.pixels) if n} == {0: 240, 2: 480, 7: 240, 255: 240}
    class_ids[3] = -1
    assert f"{mask} holds the value 3," in refusal(check_pair, image, mask, CLASSES, class_ids)


@pytest.mark.parametrize("value", [4, 128, 254])
def test_unknown_value_is_named_with_the_file_and_the_valid_range(
    image: Path, tmp_path: Path, value: int
) -> None:
    ids = np.zeros((30, 40), dtype=np.uint8)
    ids[7, 9] = value
    path = write(tmp_path / "ids.png", ids)
    message = refusal(check_pair, image, path, CLASSES)
    assert f"{path} holds the value {value}," in message
    assert "pets (classes 1 to 3, background 0, void 255)" in message


def test_without_background_and_void_every_pixel_needs_a_class(image: Path, mask: Path) -> None:
    strict = ClassTable("pets", CLASSES.names, background=None, void=())
    message = refusal(check_pair, image, mask, strict)
    assert "holds the value 0" in message and "(classes 1 to 3)" in message


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_mask_of_another_kind(image: Path, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "odd.png"
    Image.new(mode, (40, 30)).save(path)
    for arguments in ((read_mask, path), (check_pair, image, path, CLASSES)):
        message = refusal(*arguments)
        assert message.startswith(f"{path} is a mask of mode {mode}; masks are palette or grey")
        assert ("segue data convert" in message) == ("RGB" in mode)


@pytest.mark.parametrize("limit", [1000, 500])
def test_decompression_bomb(image: Path, mask: Path, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit PIL only warns, over twice the limit it raises: both are refused."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    for function, path in ((read_image, image), (read_mask, mask), (check_image, image)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as a user's session may have it
            message = refusal(function, path)
        assert message.startswith(f"{path} is too large to be decoded safely")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1200)
    assert read_image(image).shape == (30, 40, 3)


def test_threads_leave_the_warning_filters_alone(image: Path) -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(read_image, [image] * 400))) == 400
    assert warnings.filters == before


def test_checking_sees_what_reading_sees(image: Path) -> None:
    """Checking decodes a JPEG at an eighth of its size: it must not pass what reading then refuses."""
    content = image.read_bytes()
    refused = 0
    for length in range(0, len(content), 16):
        image.write_bytes(content[:length])
        outcomes = set()
        for function in (read_image, check_image):
            try:
                function(image)
                outcomes.add("read")
            except UserError as error:
                assert re.match(re.escape(str(image)), str(error))
                outcomes.add("refused")
        assert len(outcomes) == 1, f"{length} of {len(content)} bytes"
        refused += outcomes == {"refused"}
    assert refused > 10
