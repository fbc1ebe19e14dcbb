"""Rows of a TIFF, strip by strip or tile by tile, are those of the whole picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from deploy.written_images import write_tiled_tiff
from PIL import Image

from segue.data.image_files import BadFile
from segue.data.images import read_image
from segue.data.tiff_rows import large_tiff, tiff_rows

SIZE = (90, 70)


def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def rows_of(path: Path) -> np.ndarray:
    with tiff_rows(path) as file:
        assert file.size == SIZE
        return np.concatenate([file.rows(top, min(top + 35, SIZE[0])) for top in range(0, SIZE[0], 35)])


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1", "I;16"])
@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_rows_of_strips(mode, compression, tmp_path):
    image = Image.fromarray(pixels())
    deep = Image.fromarray(np.random.default_rng(1).integers(0, 2**16, SIZE, dtype=np.uint16))
    path = tmp_path / "a.tif"
    (deep if mode == "I;16" else image.convert(mode)).save(path, compression=compression, tiffinfo={278: 16})
    assert np.array_equal(rows_of(path), read_image(path))


def test_rows_of_one_strip_that_is_not_compressed(tmp_path, monkeypatch):
    Image.fromarray(pixels()).save(tmp_path / "a.tif", tiffinfo={278: SIZE[0]})
    monkeypatch.setattr("segue.data.tiff_rows.PART_BYTES", 1000)
    with tiff_rows(tmp_path / "a.tif") as file:
        assert len(file._offsets) > 1
    assert np.array_equal(rows_of(tmp_path / "a.tif"), pixels())


def test_rows_of_tiles(tmp_path):
    write_tiled_tiff(tmp_path / "a.tif", lambda top, bottom: pixels()[top:bottom], SIZE, 32)
    assert np.array_equal(read_image(tmp_path / "a.tif"), pixels()), "the file is what PIL takes it for"
    assert np.array_equal(rows_of(tmp_path / "a.tif"), pixels())


def test_what_counts_as_large(tmp_path, monkeypatch):
    Image.fromarray(pixels()).save(tmp_path / "a.tif")
    Image.fromarray(pixels()).save(tmp_path / "a.png")
    (tmp_path / "bad.tif").write_bytes(b"II*\0" + bytes(10))
    assert not large_tiff(tmp_path / "a.tif")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    found = [large_tiff(tmp_path / name) for name in ("a.tif", "a.png", "bad.tif", "none.tif")]
    assert found == [True, False, False, False]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "a.tif"
    write_tiled_tiff(path, lambda top, bottom: pixels()[top:bottom], SIZE, 32)
    content = bytearray(path.read_bytes())
    content[8:200] = bytes(192)  # the first tiles
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"a\.tif"):
        rows_of(path)
    path.write_bytes(b"II*\0" + bytes(40))
    with pytest.raises(BadFile, match=r"a\.tif"):
        rows_of(path)


def test_a_header_cannot_ask_for_all_memory(tmp_path, monkeypatch):
    """A picture in one compressed strip would be decoded as a whole."""
    path = tmp_path / "a.tif"
    Image.fromarray(pixels()).save(path, compression="tiff_lzw", tiffinfo={278: SIZE[0]})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadFile, match="with tiles or strips"), tiff_rows(path):
        pass


def test_rows_without_end_are_refused(tmp_path, monkeypatch):
    """Whole rows are held in memory."""
    Image.fromarray(pixels()).save(tmp_path / "a.tif")
    monkeypatch.setattr("segue.data.tiff_rows.LONGEST", SIZE[0] - 1)
    with pytest.raises(BadFile, match="too large to be read"), tiff_rows(tmp_path / "a.tif"):
        pass


def test_turned_pictures_are_refused(tmp_path):
    Image.fromarray(pixels()).save(tmp_path / "a.tif", tiffinfo={274: 6})
    with pytest.raises(BadFile, match="stored turned"), tiff_rows(tmp_path / "a.tif"):
        pass
