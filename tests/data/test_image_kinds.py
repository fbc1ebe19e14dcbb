"""Every kind of image and mask file that is read, those that are refused, and damaged ones of each kind."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data.images import BadFile, check_image, check_pair, read_grey, read_image, read_mask

CLASSES = ClassTable("pets", {1: "cat", 2: "dog", 3: "fish"})
LOSSLESS = {"png": {}, "tif": {}, "bmp": {}, "webp": {"lossless": True, "exact": True}}
ORIENTATION = 0x0112


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def refusal(function, *arguments) -> BadFile:
    with pytest.raises(BadFile) as caught:
        function(*arguments)
    assert str(arguments[0]) in str(caught.value)
    return caught.value


# Images


@pytest.mark.parametrize("suffix", LOSSLESS)
def test_colour(tmp_path: Path, suffix: str) -> None:
    pixels = noise(6, 9, 3)
    path = save(Image.fromarray(pixels), tmp_path / f"image.{suffix}", **LOSSLESS[suffix])
    assert np.array_equal(read_image(path), pixels) and check_image(path) == (9, 6)


def test_jpg(tmp_path: Path) -> None:
    smooth = np.tile(np.arange(0, 240, 6, dtype=np.uint8)[:, None, None], (1, 30, 3))
    path = save(Image.fromarray(smooth), tmp_path / "image.jpg", quality=95)
    assert np.abs(read_image(path).astype(int) - smooth).max() < 5


@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_colours_under_transparency_stay(tmp_path: Path, suffix: str) -> None:
    pixels = noise(6, 9, 4)
    pixels[0, :, 3] = 0
    path = save(Image.fromarray(pixels), tmp_path / f"image.{suffix}", **LOSSLESS[suffix])
    assert np.array_equal(read_image(path), pixels[..., :3])


def test_grey_with_alpha(tmp_path: Path) -> None:
    pixels = noise(6, 9, 2)
    path = save(Image.fromarray(pixels, "LA"), tmp_path / "image.png")
    assert np.array_equal(read_image(path), np.repeat(pixels[..., :1], 3, axis=2))


@pytest.mark.parametrize("transparency", [None, 3, bytes(range(256))])
def test_palette_gives_colours(tmp_path: Path, transparency) -> None:
    ids, palette = noise(6, 9), noise(256, 3)
    image = Image.fromarray(ids)
    image.putpalette(palette.tobytes())
    options = {} if transparency is None else {"transparency": transparency}
    path = save(image, tmp_path / "image.png", **options)
    assert np.array_equal(read_image(path), palette[ids])


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp"])
def test_one_bit(tmp_path: Path, suffix: str) -> None:
    bits = noise(6, 9) > 127
    path = save(Image.fromarray(bits), tmp_path / f"image.{suffix}")
    assert np.array_equal(read_image(path), np.repeat(bits[..., None] * np.uint8(255), 3, axis=2))
    assert np.array_equal(read_mask(path), bits.astype(np.uint8))


@pytest.mark.parametrize("suffix", ["jpg", "tif"])
def test_cmyk(tmp_path: Path, suffix: str) -> None:
    image = Image.new("CMYK", (9, 6), (0, 255, 255, 0))
    assert np.abs(read_image(save(image, tmp_path / f"i.{suffix}")).astype(int) - [255, 0, 0]).max() < 4


DEEP = np.array([[0, 128, 129, 4095], [4096, 65406, 65407, 65535]], dtype=np.uint16)


@pytest.mark.parametrize("suffix", ["png", "tif", "big.tif"])
def test_16_bit_grey_is_scaled_and_rounded(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"image.{suffix}"
    big = Image.frombytes("I;16B", DEEP.shape[::-1], DEEP.astype(">u2").tobytes())
    save(big if "big" in suffix else Image.fromarray(DEEP), path)
    wide = read_image(path)
    assert wide.dtype == np.uint8 and (wide == wide[..., :1]).all()
    assert wide[..., 0].tolist() == [[0, 0, 1, 16], [16, 254, 255, 255]]
    assert read_image(path, bits=12)[..., 0].tolist() == [[0, 8, 8, 255], [255, 255, 255, 255]]
    assert read_image(path, bits=13)[0, 3, 0] == 127
    assert check_image(path) == (4, 2)


@pytest.mark.parametrize("bits", [7, 17])
def test_impossible_bits(tmp_path: Path, bits: int) -> None:
    path = save(Image.fromarray(DEEP), tmp_path / "image.png")
    with pytest.raises(UserError, match=f"cannot have {bits} bits"):
        read_image(path, bits)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def write_png(path: Path, rows: bytes, width: int, height: int, bits: int, colour: int, *more: bytes) -> Path:
    """By hand, with what PIL does not write; rows begin with their filter."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    body = header + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def test_16_bit_colour_keeps_its_upper_bits_or_is_refused(tmp_path: Path) -> None:
    pixels = np.array([[[65535, 256, 255], [0, 32768, 4095]]], dtype=">u2")
    path = write_png(tmp_path / "deep.png", b"\0" + pixels.tobytes(), 2, 1, 16, 2)
    assert read_image(path).tolist() == [[[255, 1, 0], [0, 128, 15]]]
    for function in (read_image, check_image):
        assert "only the upper 8" in str(refusal(function, path, 12))


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bit_is_refused(tmp_path: Path, mode: str) -> None:
    path = save(Image.new(mode, (9, 6)), tmp_path / "image.tif")
    for function in (read_image, check_image):
        assert f"mode {mode} " in str(refusal(function, path))
    assert f"mask of mode {mode};" in str(refusal(read_mask, path))


@pytest.mark.parametrize("suffix", ["tif", "webp", "gif", "png"])
def test_several_pictures_are_refused(tmp_path: Path, suffix: str) -> None:
    frames = [Image.fromarray(noise(8, 8, 3) // (1 + i)) for i in range(3)]
    path = save(frames[0], tmp_path / f"film.{suffix}", save_all=True, append_images=frames[1:])
    for function in (read_image, check_image, read_mask):
        assert "holds 3 pictures" in str(refusal(function, path))


def test_jpg_with_more_pictures_is_its_first(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (16, 8), colour) for colour in ("white", "black")]
    path = tmp_path / "phone.jpg"
    frames[0].save(path, "MPO", save_all=True, append_images=frames[1:])
    assert read_image(path).min() > 250 and check_image(path) == (16, 8)


def test_other_formats_are_no_images(tmp_path: Path) -> None:
    path = save(Image.fromarray(noise(8, 8, 3)), tmp_path / "image.eps")
    assert "not an image" in str(refusal(read_image, path))


# EXIF


def stored_as(upright: np.ndarray, orientation: int) -> np.ndarray:
    """What a camera stores, from the definition: where row 0 and column 0 of the stored image are seen."""
    height, width = upright.shape[:2]
    places = {
        1: lambda r, c: (r, c),
        2: lambda r, c: (r, width - 1 - c),
        3: lambda r, c: (height - 1 - r, width - 1 - c),
        4: lambda r, c: (height - 1 - r, c),
        5: lambda r, c: (c, r),
        6: lambda r, c: (c, width - 1 - r),
        7: lambda r, c: (height - 1 - c, width - 1 - r),
        8: lambda r, c: (height - 1 - c, r),
    }[orientation]
    shape = (width, height) if orientation > 4 else (height, width)
    return np.array([[upright[places(r, c)] for c in range(shape[1])] for r in range(shape[0])])


def turned(path: Path, upright: np.ndarray, orientation: int, **options: object) -> Path:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return save(Image.fromarray(stored_as(upright, orientation)), path, exif=exif, **options)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif", "webp"])
def test_image_is_turned_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    pixels = noise(3, 5, 3)
    path = turned(tmp_path / f"i.{suffix}", pixels, orientation, **LOSSLESS[suffix])
    assert np.array_equal(read_image(path), pixels) and check_image(path) == (5, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_jpg_and_its_mask_are_turned_upright(tmp_path: Path, orientation: int) -> None:
    ids = np.zeros((24, 40), dtype=np.uint8)
    ids[:8, :16] = 3
    photo = np.repeat(ids[..., None] * np.uint8(80), 3, axis=2)
    image = turned(tmp_path / "i.jpg", photo, orientation, quality=95)
    assert np.abs(read_image(image).astype(int) - photo).max() < 30 and check_image(image) == (40, 24)
    for suffix in ("png", "tif"):
        mask = turned(tmp_path / f"m.{suffix}", ids, orientation)
        assert np.array_equal(read_mask(mask), ids) and np.array_equal(read_grey(mask), ids)
        assert check_pair(image, mask, CLASSES).pixels[3] == 128


def test_turned_16_bit_image_and_palette_mask(tmp_path: Path) -> None:
    wide = read_image(turned(tmp_path / "deep.png", DEEP, 6))
    assert wide.shape == (2, 4, 3) and wide[1, 3, 0] == 255 and wide[0, 0, 0] == 0
    ids, exif = noise(3, 5), Image.Exif()
    exif[ORIENTATION] = 6
    image = Image.fromarray(stored_as(ids, 6))
    image.putpalette(noise(768).tobytes())
    assert np.array_equal(read_mask(save(image, tmp_path / "m.png", exif=exif)), ids)


def test_mask_that_fits_the_stored_image_only(tmp_path: Path) -> None:
    image = turned(tmp_path / "i.jpg", noise(24, 40, 3), 6)
    mask = save(Image.new("L", (24, 40)), tmp_path / "m.png")
    with pytest.raises(
        BadFile, match=r"is 24 x 40 pixels: it fits .* as that is stored.* to 40 x 24"
    ) as caught:
        check_pair(image, mask, CLASSES)
    assert caught.value.kind == "wrong size"
    other = save(Image.new("L", (23, 40)), tmp_path / "o.png")
    with pytest.raises(BadFile, match=r"is 23 x 40 pixels, but its image .* is 40 x 24"):
        check_pair(image, other, CLASSES)


@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b""])
def test_damaged_exif_data_turn_nothing(tmp_path: Path, exif: bytes) -> None:
    pixels = noise(3, 5, 3)
    path = save(Image.fromarray(pixels), tmp_path / "i.png", exif=exif)
    assert np.array_equal(read_image(path), pixels)


# Masks


@pytest.mark.parametrize("suffix", ["png", "tif", "bmp", "gif"])
@pytest.mark.parametrize("palette", [False, True])
def test_mask_formats(tmp_path: Path, suffix: str, palette: bool) -> None:
    ids = noise(6, 9)
    ids[0, 0] = 255  # else a palette may be stored shorter, with smaller indices
    image = Image.fromarray(ids)
    if palette:
        image.putpalette(bytes((255 - i) // 2 for i in range(256) for _ in range(3)))
    path = save(image, tmp_path / f"m.{suffix}", **({"optimize": False} if suffix == "gif" else {}))
    assert np.array_equal(read_mask(path), ids)


@pytest.mark.parametrize(("bits", "ids"), [(1, [0, 1, 1, 0]), (2, [0, 1, 2, 3]), (4, [0, 7, 14, 15])])
@pytest.mark.parametrize("colour", [0, 3])
def test_small_ids_are_not_stretched(tmp_path: Path, bits: int, ids: list[int], colour: int) -> None:
    packed = int("".join(f"{i:0{bits}b}" for i in ids).ljust(8 * -(-4 * bits // 8), "0"), 2)
    row = b"\0" + packed.to_bytes(-(-4 * bits // 8), "big")
    palette = [chunk(b"PLTE", noise(48).tobytes())] if colour == 3 else []
    path = write_png(tmp_path / "small.png", row, 4, 1, bits, colour, *palette)
    assert read_mask(path).tolist() == [ids]


def test_16_bit_mask(tmp_path: Path) -> None:
    ids = noise(6, 9).astype(np.uint16)
    for suffix in ("png", "tif"):
        read = read_mask(save(Image.fromarray(ids), tmp_path / f"m.{suffix}"))
        assert read.dtype == np.uint8 and np.array_equal(read, ids)
    ids[3, 3] = 1000
    error = refusal(read_mask, save(Image.fromarray(ids), tmp_path / "m.png"))
    assert "the value 1000" in str(error) and error.kind == "unknown id"


@pytest.mark.parametrize(
    ("name", "options"),
    [("m.jpg", {}), ("m.webp", {"lossless": True}), ("m.tif", {"compression": "jpeg"})],
)
def test_lossy_masks_are_refused(tmp_path: Path, name: str, options: dict) -> None:
    path = save(Image.fromarray(noise(16, 16)), tmp_path / name, **options)
    assert "lossy" in str(refusal(read_mask, path))


# Bombs and damage


def test_huge_size_in_the_header(tmp_path: Path) -> None:
    for width, height in ((2**31 - 1, 2**31 - 1), (60000, 60000), (10000, 10000)):
        for colour in (0, 3):
            path = write_png(tmp_path / "bomb.png", b"\0", width, height, 8, colour)
            for function in (read_image, check_image, read_mask):
                assert "too large" in str(refusal(function, path))


def test_huge_text_in_a_png(tmp_path: Path) -> None:
    text = PngImagePlugin.PngInfo()
    text.add_text("a", "x" * (PngImagePlugin.MAX_TEXT_CHUNK + 1), zip=True)
    path = save(Image.fromarray(noise(4, 4, 3)), tmp_path / "text.png", pnginfo=text)
    assert "cannot be read" in str(refusal(read_image, path))


VALID: dict[str, tuple[Image.Image, str, dict]] = {
    "jpg": (Image.fromarray(noise(12, 16, 3)), "JPEG", {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}),
    "progressive": (Image.fromarray(noise(12, 16, 3)), "JPEG", {"progressive": True}),
    "mpo": (
        Image.fromarray(noise(12, 16, 3)),
        "MPO",
        {"save_all": True, "append_images": [Image.new("RGB", (16, 12))]},
    ),
    "png": (Image.fromarray(noise(12, 16, 3)), "PNG", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}),
    "grey": (Image.fromarray(noise(12, 16)), "PNG", {}),
    "deep": (Image.fromarray(noise(12, 16).astype(np.uint16) * 257), "PNG", {}),
    "palette": (Image.fromarray(noise(12, 16)).convert("P"), "PNG", {"transparency": bytes(range(256))}),
    "tif": (Image.fromarray(noise(12, 16, 3)), "TIFF", {}),
    "lzw": (Image.fromarray(noise(12, 16)), "TIFF", {"compression": "tiff_lzw"}),
    "deep tif": (Image.fromarray(noise(12, 16).astype(np.uint16)), "TIFF", {}),
    "bmp": (Image.fromarray(noise(12, 16, 3)), "BMP", {}),
    "webp": (Image.fromarray(noise(12, 16, 3)), "WEBP", {}),
    "webp alpha": (Image.fromarray(noise(12, 16, 4)), "WEBP", {"lossless": True}),
    "gif": (Image.fromarray(noise(12, 16)).convert("P"), "GIF", {}),
}


def second_header(content: bytes) -> int:
    """Where the size stands that is not at the start: of a JPEG, a TIFF, a GIF."""
    if content.startswith(b"\xff\xd8"):
        return max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
    if content.startswith(b"II"):
        return int.from_bytes(content[4:8], "little")
    return 13 + (6 << (content[10] & 7)) if content.startswith(b"GIF") else 0


def damaged(content: bytes, thorough: bool) -> Iterator[bytes]:
    """Cut short, with single bytes changed, mostly in the headers, and with a part missing."""
    length, second = len(content), second_header(content)

    def places(number: int) -> list[int]:
        return np.linspace(0, length - 1, length if thorough else number).astype(int).tolist()

    yield from (content[:place] for place in places(20))
    for place in sorted({*range(60), *range(second, second + 24), *places(60)}):
        values = (0, 255, content[place] ^ (1 << place % 8))
        header = place < 32 or second <= place < second + 24
        for value in values if thorough or header else [values[place % 3]]:
            yield content[:place] + bytes([value]) + content[place + 1 :]
    yield from (content[:place] + content[place + 7 :] for place in places(10))


@pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"]
)
@pytest.mark.parametrize("kind", VALID)
def test_damaged_file_is_read_or_refused(
    tmp_path: Path, kind: str, thorough: bool, capfd, monkeypatch
) -> None:
    """Never another error, a warning (an error in tests), a wrong shape, or words on the terminal.

    But for words of libtiff, which writes to stderr by itself.
    """
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**6)  # damage makes sizes: memory is not the subject
    image, form, options = VALID[kind]
    path = tmp_path / "file"
    image.save(path, form, **options)
    assert read_image(path).shape == (12, 16, 3)
    outcomes = {"read": 0, "refused": 0}
    for content in damaged(path.read_bytes(), thorough):
        path.write_bytes(content)
        try:
            pixels = read_image(path)
            assert pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8 and pixels.size
            assert check_image(path) == (pixels.shape[1], pixels.shape[0])
            outcomes["read"] += 1
        except BadFile as error:
            assert str(error).startswith(f"{path} ") and str(error).endswith(".")
            refusal(check_image, path)
            outcomes["refused"] += 1
        try:
            mask = read_mask(path)
            assert mask.ndim == 2 and mask.dtype == np.uint8 and mask.size
        except BadFile as error:
            assert str(error).startswith(f"{path} ")
    assert outcomes["refused"] > 60 and outcomes["read"] > 10
    assert form == "TIFF" or capfd.readouterr() == ("", "")
