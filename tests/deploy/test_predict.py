"""`segue predict` without a network: masks, tables, batches, tiles, views, resume, bad files."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from deploy.predicting import COLOURS, Brightness, photo, read_ids, save_photos, truth
from deploy.written_images import png_bomb, write_tiled_tiff
from PIL import Image

from segue.core.errors import UserError
from segue.deploy import predict as module
from segue.deploy.inputs import find_inputs
from segue.deploy.predict import Settings, predict, tile_of
from segue.deploy.prepare import Preparation
from segue.deploy.views import Views


def run(words, out: Path, predictor=None, resume=False, old=None, **settings):
    predictor = predictor or Brightness()
    return predict(
        predictor, find_inputs([str(word) for word in words], out), out, Settings(**settings), old, resume
    )


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def test_masks_are_ids_in_the_colours_of_the_classes(tmp_path):
    photos = save_photos(tmp_path / "photos")
    done = run([tmp_path / "photos"], tmp_path / "out")
    names = ["done.jsonl", "masks/0.png", "masks/1.png", "masks/2.png", "predictions.csv", "predictions.json"]
    assert files_of(tmp_path / "out") == names and done.skipped == []
    for number, pixels in enumerate(photos):
        with Image.open(tmp_path / "out" / "masks" / f"{number}.png") as mask:
            mask.load()
            assert mask.mode == "P" and np.array_equal(np.asarray(mask), truth(pixels))
            assert tuple(mask.getpalette()[:9]) == sum(COLOURS[:3], ())


def test_tables_name_classes_areas_and_confidence(tmp_path):
    pixels = save_photos(tmp_path / "photos", 1)[0]
    run([tmp_path / "photos" / "0.png"], tmp_path / "out")
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    (entry,) = document["images"]
    counts = np.bincount(truth(pixels).ravel(), minlength=3)
    assert entry["pixels"] == {
        name: count
        for name, count in zip(("background", "grey", "white"), counts.tolist(), strict=True)
        if count
    }
    assert (entry["width"], entry["height"], entry["mask"]) == (40, 30, "masks/0.png")
    assert 0.9 < entry["confidence"] <= 1 and entry["seconds"] >= 0
    (row,) = csv.DictReader(io.StringIO((tmp_path / "out" / "predictions.csv").read_text()))
    assert [float(row[name]) for name in ("background", "grey", "white")] == pytest.approx(
        (100 * counts / counts.sum()).tolist(), abs=1e-3
    )


def test_images_of_one_input_size_are_seen_together(tmp_path):
    for number, (height, width) in enumerate([(40, 60), (80, 120), (40, 60), (50, 50), (40, 60)]):
        Image.fromarray(photo(height, width, number)).save(tmp_path / f"{number}.png")
    predictor = Brightness(images=Preparation(40))
    done = run([tmp_path / f"{number}.png" for number in range(5)], tmp_path / "out", predictor, batch=3)
    assert sorted(predictor.batches) == [1, 1, 3], "40 x 60 and 80 x 120 come to the network in one size"
    assert [record.image for record in done.records] == [str(tmp_path / f"{n}.png") for n in range(5)]


def test_waiting_images_have_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAITING_PIXELS", 3000)
    predictor = Brightness()
    save_photos(tmp_path / "photos", 6)
    run([tmp_path / "photos"], tmp_path / "out", predictor, batch=100)
    assert max(predictor.batches) <= 2


@pytest.mark.parametrize(
    "settings", [{"tile": 64}, {"views": Views(True, (0.5, 1.0, 2.0))}, {"tile": 64, "views": Views(True)}]
)
def test_tiles_and_views_give_the_mask_of_the_whole_image(settings, tmp_path):
    pixels = photo(150, 170)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    run([tmp_path / "a.png"], tmp_path / "out", **settings)
    found = read_ids(tmp_path / "out" / "masks" / "a.png")
    away = np.ones(pixels.shape[:2], dtype=bool)
    if settings.get("views", Views()).scales != (1.0,):  # scaled images are smooth at the borders of blocks
        for border in (0, 1, 2, 7, 8, 9):
            away[border::10] = away[:, border::10] = False
    assert np.array_equal(found[away], truth(pixels)[away])


def test_when_images_are_tiled():
    photos, own = Brightness(images=Preparation(512)), Brightness()
    assert tile_of(photos, (3000, 4000), None) is None, "a photo is seen whole, as in training"
    assert tile_of(photos, (9000, 9000), None) == 512
    assert tile_of(own, (2000, 2000), None) is None and tile_of(own, (3000, 4000), None) == 512
    assert tile_of(photos, (600, 400), 500) == 512 and tile_of(photos, (400, 400), 500) is None


def test_a_tiff_beyond_the_pixel_limit_is_read_in_rows(tmp_path, monkeypatch):
    pixels = photo(200, 150)
    write_tiled_tiff(tmp_path / "large.tif", lambda top, bottom: pixels[top:bottom], (200, 150), 64)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    done = run(
        [tmp_path / "large.tif", tmp_path / "large.png"], tmp_path / "out", overlay=True, old=Brightness()
    )
    assert [name for name, _ in done.skipped] == [str(tmp_path / "large.png")], "PIL decodes those as a whole"
    monkeypatch.undo()
    assert np.array_equal(read_ids(tmp_path / "out" / "masks" / "large_tif.png"), truth(pixels))
    assert done.records[0].changed == 0


def test_bad_files_are_named_and_the_rest_is_done(tmp_path):
    photos = tmp_path / "photos"
    save_photos(photos, 2)
    Image.fromarray(photo(90, 90)).save(photos / "cut.jpg")
    (photos / "cut.jpg").write_bytes((photos / "cut.jpg").read_bytes()[:700])
    (photos / "empty.png").touch()
    (photos / "text.jpg").write_text("not an image")
    (photos / "bomb.png").write_bytes(png_bomb(60_000, 60_000))
    done = run([photos], tmp_path / "out")
    assert [Path(name).name for name, _ in done.skipped] == ["bomb.png", "cut.jpg", "empty.png", "text.jpg"]
    assert all(Path(name).name in reason for name, reason in done.skipped)
    assert "too large to be decoded safely" in done.skipped[0][1], "by the header, before anything is decoded"
    assert [Path(record.image).name for record in done.records] == ["0.png", "1.png"]
    assert len(json.loads((tmp_path / "out" / "predictions.json").read_text())["skipped"]) == 4


def test_an_image_that_the_network_cannot_take_does_not_stop_its_batch(tmp_path):
    class Picky(Brightness):
        def answers(self, images):
            if any(image[0, 0, 0] == 7 for image in images):
                raise RuntimeError("too small")
            return super().answers(images)

    photos = save_photos(tmp_path / "photos", 3)
    odd = photos[0].copy()
    odd[0, 0] = 7
    Image.fromarray(odd).save(tmp_path / "photos" / "odd.png")
    done = run([tmp_path / "photos"], tmp_path / "out", Picky())
    assert len(done.records) == 3 and [Path(name).name for name, _ in done.skipped] == ["odd.png"]


def test_names_lead_nowhere_else_and_equal_ones_are_kept_apart(tmp_path, monkeypatch):
    pixels = photo()
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / "in" / folder / "x.png")
    Image.fromarray(pixels).save(tmp_path / "in" / "a" / "x.bmp")
    for name in ("..png", "\n.png", "-rf.png", "a\\..\\..\\up.png", "CAPS.png", "caps.png"):
        Image.fromarray(pixels).save(tmp_path / "in" / name, format="PNG")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    done = run(["../in", "../in/../in/a/x.png", str(tmp_path / "in" / "a")], Path("out"))
    masks = files_of(tmp_path / "work" / "out" / "masks")
    assert len(masks) == len(done.records) == len({name.casefold() for name in masks}) == 8
    assert os.listdir(tmp_path / "work") == ["out"] and not any("/" in name for name in masks)


def test_links_in_the_folder_are_not_written_through(tmp_path):
    save_photos(tmp_path / "photos", 2)
    run([tmp_path / "photos" / "0.png"], tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "precious.png").write_text("precious")
    (tmp_path / "out" / "masks" / "1.png").symlink_to(tmp_path / "precious.png")
    with pytest.raises(UserError, match="is a link"):
        run([tmp_path / "photos" / "1.png"], tmp_path / "out", resume=True)
    (tmp_path / "out" / "overlays").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        run([tmp_path / "photos" / "0.png"], tmp_path / "out", resume=True, overlay=True)
    assert (tmp_path / "precious.png").read_text() == "precious" and not os.listdir(tmp_path / "elsewhere")


def test_foreign_folders_and_earlier_predictions_are_left_alone(tmp_path):
    save_photos(tmp_path / "photos", 1)
    with pytest.raises(UserError, match="holds other files"):
        run([tmp_path / "photos" / "0.png"], tmp_path / "photos")
    run([tmp_path / "photos"], tmp_path / "out")
    with pytest.raises(UserError, match="--resume"):
        run([tmp_path / "photos"], tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        run([tmp_path / "photos"], tmp_path / "file")


def test_resume_leaves_out_what_the_same_model_has_done(tmp_path):
    save_photos(tmp_path / "photos", 3)
    out = tmp_path / "photos" / "out"  # inside of what is predicted: masks are no inputs
    run([tmp_path / "photos"], out)
    predictor = Brightness()
    again = run([tmp_path / "photos"], out, predictor, resume=True)
    assert predictor.batches == [] and again.resumed == 3 and len(again.records) == 3
    (out / "masks" / "0.png").unlink()
    Image.fromarray(photo(20, 20, 9)).save(tmp_path / "photos" / "1.png")
    run([tmp_path / "photos"], out, predictor, resume=True)
    assert sum(predictor.batches) == 2, "one whose mask is gone and one that has changed"
    other = Brightness(("background", "white"))
    assert run([tmp_path / "photos"], out, other, resume=True).resumed == 0, "another model"
    assert run([tmp_path / "photos"], out, other, resume=True, overlay=True).resumed == 0, "other settings"


def test_resume_after_a_process_that_died_while_it_wrote(tmp_path):
    save_photos(tmp_path / "photos", 2)
    run([tmp_path / "photos"], tmp_path / "out")
    journal = tmp_path / "out" / "done.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20] + b"\n[1, 2]\n\xff\n{}")
    assert run([tmp_path / "photos"], tmp_path / "out", resume=True).resumed == 1
    assert run([tmp_path / "photos"], tmp_path / "out", resume=True).resumed == 2


def test_ctrl_c_leaves_tables_of_what_was_done_and_no_half_file(tmp_path):
    class Stopped(Brightness):
        def answers(self, images):
            if len(self.batches) == 2:
                raise KeyboardInterrupt
            return super().answers(images)

    save_photos(tmp_path / "photos", 5)
    with pytest.raises(KeyboardInterrupt):
        run([tmp_path / "photos"], tmp_path / "out", Stopped(), batch=1)
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert len(document["images"]) == 2 and len(files_of(tmp_path / "out" / "masks")) == 2
    assert run([tmp_path / "photos"], tmp_path / "out", resume=True, batch=1).resumed == 2


def test_compare_shows_old_new_and_difference_by_name(tmp_path):
    """Ids of the two models differ; names tell what has changed."""
    Image.fromarray(photo()).save(tmp_path / "a.png")
    old = Brightness(("background", "moss", "white"))
    done = run([tmp_path / "a.png"], tmp_path / "out", Brightness(), old=old, overlay=True)
    grey = 100 * float((truth(photo()) == 1).mean())
    assert done.records[0].changed == pytest.approx(grey)
    assert files_of(tmp_path / "out")[0] == "compare/a.png"
    with Image.open(tmp_path / "out" / "compare" / "a.png") as picture:
        assert picture.width == 120 and picture.height > 30
    with Image.open(tmp_path / "out" / "overlays" / "a.png") as picture:
        assert picture.width == 40 and picture.height > 30, "a legend stands below"


def test_stdin_brings_one_image(tmp_path, monkeypatch):
    content = io.BytesIO()
    Image.fromarray(photo()).save(content, format="PNG")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.getvalue())))
    run(["-"], tmp_path / "out")
    assert np.array_equal(read_ids(tmp_path / "out" / "masks" / "stdin.png"), truth(photo()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(["-"], tmp_path / "none").skipped[0][0] == "stdin"


def test_exif_data_turn_images(tmp_path):
    stored = Image.fromarray(np.rot90(photo()).copy())
    exif = stored.getexif()
    exif[0x0112] = 6
    stored.save(tmp_path / "a.png", exif=exif)
    run([tmp_path / "a.png"], tmp_path / "out")
    assert np.array_equal(read_ids(tmp_path / "out" / "masks" / "a.png"), truth(photo()))


def test_more_than_256_classes_make_masks_of_16_bits(tmp_path):
    class Many(Brightness):
        def answers(self, images):
            return [
                one._replace(ids=(one.ids.astype(np.uint16) * 200)) for one in Brightness().answers(images)
            ]

    many = Many(tuple(map(str, range(401))))
    many.colours = ((0, 0, 0),) * 401
    Image.fromarray(photo()).save(tmp_path / "a.png")
    run([tmp_path / "a.png"], tmp_path / "out", many)
    assert np.array_equal(read_ids(tmp_path / "out" / "masks" / "a.png"), truth(photo()) * 200)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("none.jpg", "There is no file or folder none.jpg"),
        ("*.jpg", r"No file matches \*\.jpg"),
        ("empty", "empty has no image"),
        ("", "is empty"),
    ],
)
def test_inputs_that_are_none(word, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    with pytest.raises(UserError, match=message):
        find_inputs([word], tmp_path / "out")


def test_patterns_and_files_of_any_ending(tmp_path, monkeypatch):
    save_photos(tmp_path, 3)
    (tmp_path / "1.png").rename(tmp_path / "1.dat")
    monkeypatch.chdir(tmp_path)
    assert [one.name for one in find_inputs(["[02].png", "1.dat", "0.png"], Path("out"))] == [
        "0.png",
        "2.png",
        "1.dat",
    ]


def test_no_torch_is_imported():
    import subprocess

    code = (
        "import sys, segue.deploy.predict, segue.deploy.annotate, segue.cli.predict;"
        "print(sorted({'torch', 'torchvision', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
