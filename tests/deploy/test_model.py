"""Models outside their runs: from which places they load, what they predict for which images, and files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import recipe

import segue
from segue.core.config import ModelConfig
from segue.core.scenario import Step, make_scenario
from segue.data import transforms
from segue.data.datasets import scenes
from segue.data.input_size import MOST_PIXELS
from segue.deploy.load import load_run
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation
from segue.engine.restore import restore_method
from segue.models.segmenter import Output, Segmenter

CPU = torch.device("cpu")


class Brightness(Segmenter):
    """Says 0, 1 or 2 as a pixel is black, grey or white: what it answers follows from the image alone."""

    def __init__(self) -> None:
        super().__init__(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
        self.sizes: list[tuple[int, int]] = []

    def forward(self, images_B3HW, old_z_BChw=None):
        self.sizes.append(tuple(images_B3HW.shape[-2:]))
        grey = images_B3HW.float().mean(1, keepdim=True) / 255
        centres = torch.tensor([0.0, 0.5, 1.0]).view(1, 3, 1, 1)
        return Output(-20 * (grey - centres).abs())


@pytest.fixture
def bright() -> Model:
    return Model(Brightness().eval(), ("background", "grey", "white"))


def photo(height: int = 12, width: int = 20) -> np.ndarray:
    """The left half black, the right half white, the topmost row grey."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[:, width // 2 :] = 255
    pixels[0] = 128
    return pixels


def test_a_closed_background_is_never_predicted(bright, tmp_path):
    closed = replace(bright, closed=True)
    mask, before = (model.predict(photo(), probabilities=True) for model in (closed, bright))
    assert (mask.ids > 0).all() and (before.ids == 0).any()
    assert (mask.ids == 1 + before.probabilities[1:].argmax(0)).all(), "the best of the others"
    assert (mask.probabilities[0] == 0).all()
    assert np.allclose(mask.probabilities.sum(0), 1)


@pytest.mark.parametrize("name", ["model", "model.safetensors"])
def test_a_saved_model_stays_closed(tmp_path, name):
    network = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(Step(0, new=(1, 2), old=()), balanced=False)
    Model(network, ("background", "disc", "square"), closed=True).save(tmp_path / name)
    model = segue.load(tmp_path / name, "cpu")
    assert model.closed and (model.predict(photo()).ids > 0).all()


EXPECTED = np.where(np.arange(12)[:, None] == 0, 1, np.where(np.arange(20) >= 10, 2, 0))


@pytest.mark.parametrize("kind", ["array", "view", "image", "palette image", "text", "path"])
def test_every_kind_of_image_gives_the_same_mask(kind, bright, tmp_path):
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    given = {
        "array": photo(),
        "view": photo()[:, ::-1][:, ::-1],
        "image": Image.fromarray(photo()),
        "palette image": Image.fromarray(photo()).quantize(8),
        "text": str(tmp_path / "photo.png"),
        "path": tmp_path / "photo.png",
    }[kind]
    found = bright.predict(given)
    assert found.ids.dtype == np.uint8 and np.array_equal(found.ids, EXPECTED)
    assert found.names == ("background", "grey", "white") and found.probabilities is None


@pytest.mark.parametrize("opened", [False, True])
def test_image_is_turned_as_its_exif_data_ask(opened, bright, tmp_path):
    stored, path = Image.fromarray(np.rot90(photo()).copy()), tmp_path / "turned.png"
    exif = stored.getexif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    stored.save(path, exif=exif)
    with Image.open(path) as image:
        found = bright.predict(image if opened else path)
    assert np.array_equal(found.ids, EXPECTED) and np.array_equal(found.image, photo())


def test_image_of_the_caller_stays_as_it_is(bright):
    image, pixels = Image.fromarray(photo()).quantize(8), photo()
    image.info["transparency"] = 0
    bright.predict(image)
    found = bright.predict(pixels)
    pixels[:] = 7
    assert image.info["transparency"] == 0 and np.array_equal(found.image, photo())


def test_sixteen_bit_images_are_read_as_in_training(bright, tmp_path):
    Image.fromarray(np.full((8, 8), 4095, dtype=np.uint16)).save(tmp_path / "deep.png")
    assert bright.predict(tmp_path / "deep.png").names == ("background",)
    bright.images = Preparation(bits=12)
    assert bright.predict(tmp_path / "deep.png").names == ("white",)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3)), "float64.*should be uint8"),
        (np.zeros((4, 4), np.uint8), "height x width x 3"),
        (np.zeros((3, 4, 4), np.uint8), "height x width x 3"),
        (np.zeros((0, 4, 3), np.uint8), "is no image"),
        (torch.zeros(3, 4, 4), "not Tensor"),
        ("nowhere.jpg", "nowhere.jpg is missing"),
        (Path(__file__), "is not an image that can be read"),
        (Image.new("F", (4, 4)), "mode F"),
        (Image.new("RGB", (0, 4)), "no pixels"),
        ("~nobody-of-this-name/photo.jpg", "is missing"),
    ],
)
def test_what_is_no_image_is_refused(image, message, bright):
    with pytest.raises(segue.UserError, match=message):
        bright.predict(image)


def test_truncated_image_that_is_open_is_refused(bright, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    (tmp_path / "part.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:900])
    with (
        Image.open(tmp_path / "part.jpg") as image,
        pytest.raises(segue.UserError, match="cannot be decoded"),
    ):
        bright.predict(image)


@pytest.mark.parametrize(
    ("size", "own", "seen"),
    [
        (None, (12, 20), (12, 20)),
        (24, (12, 20), (24, 40)),
        (24, (90, 48), (45, 24)),
        (24, (1, 1), (24, 24)),
        (None, (1, 7), (1, 7)),
    ],
)
def test_network_sees_the_shorter_side_as_in_a_test_and_answers_at_the_own_size(size, own, seen, bright):
    bright.images = Preparation(size)
    assert bright.predict(np.full((*own, 3), 255, np.uint8)).ids.shape == own
    assert bright.network.sizes == [seen]
    resize = transforms.test_transform(size or min(own)).transforms[0]
    (resized,) = resize(torch.zeros(1, 3, *own, dtype=torch.uint8))
    assert tuple(resized.shape[-2:]) == seen, "as the transform of a test has it"


@pytest.mark.parametrize("size", [None, 512])
@pytest.mark.parametrize("own", [(9000, 12000), (1, 500_000), (300_000, 2), (20_000, 20_000)])
def test_input_of_the_network_is_bounded(size, own):
    height, width = Preparation(size).input_size(*own)
    assert height >= 1 and width >= 1 and height * width <= MOST_PIXELS


def test_probabilities_are_given_on_request(bright):
    bright.images = Preparation(24)
    found = bright.predict(photo(), probabilities=True)
    assert found.probabilities.shape == (3, 12, 20) and found.probabilities.dtype == np.float32
    assert np.allclose(found.probabilities.sum(0), 1, atol=1e-5)
    sure = found.probabilities.max(0) > 0.6
    assert sure.sum() > 100 and np.array_equal(found.probabilities.argmax(0)[sure], found.ids[sure])


def test_mask_is_written_as_a_palette_picture_with_the_same_ids(bright, tmp_path):
    found = bright.predict(photo())
    found.save(tmp_path / "sub" / "mask.png")
    with Image.open(tmp_path / "sub" / "mask.png") as picture:
        assert picture.mode == "P" and np.array_equal(np.asarray(picture), found.ids)
        assert tuple(picture.getpalette()[3:6]) == bright.colours[1]
    with pytest.raises(segue.UserError, match=r"should end in \.png"):
        found.save(tmp_path / "mask.jpg")
    assert not (tmp_path / "mask.jpg").exists()


def test_more_than_256_classes_keep_their_ids(bright, tmp_path):
    found = Model(bright.network, (*bright.classes, *(f"class {i}" for i in range(300)))).predict(photo())
    assert found.ids.dtype == np.uint16
    found.ids[0, 0] = 300
    found.save(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as picture:
        assert np.array_equal(np.asarray(picture), found.ids)
    assert found.overlay().size == (20, 12)


def test_overlay_blends_classes_and_leaves_background_alone(bright):
    found = bright.predict(photo())
    shown = np.asarray(found.overlay())
    assert np.array_equal(shown[found.ids == 0], photo()[found.ids == 0])
    mixed = (photo()[found.ids == 2].astype(float) + bright.colours[2]) / 2
    assert np.abs(shown[found.ids == 2] - mixed).max() <= 1
    assert np.array_equal(np.asarray(found.overlay(0.0)), photo())
    with pytest.raises(segue.UserError, match="between 0 and 1"):
        found.overlay(2.0)


@pytest.mark.parametrize("method", ["caf", "ssul"])
def test_loaded_run_predicts_what_its_tests_predict(method, finished):
    """An image as large as the crop is seen as a test sees it."""
    model = segue.load(finished(method), device="cpu")
    data = scenes.Scenes(scenes.Config(size=32, classes=3, train=40, test=12), "test")
    scenario = make_scenario(data.classes, "2-1")
    whole = restore_method(recipe(method), finished(method), scenario.steps, CPU)
    assert model.classes == scenario.channel_names(scenario[1]) and model.images.size == 32
    for index in range(4):
        image = data.read(index).image
        with torch.inference_mode():
            expected = whole.predict(torch.from_numpy(image).permute(2, 0, 1)[None])[0]
        found = model.predict(image, probabilities=True)
        first, second = expected.topk(2, dim=0).values
        clear = (first - second > 1e-3).numpy()
        assert np.array_equal(found.ids[clear], expected.argmax(0).numpy()[clear]) and clear.mean() > 0.5
        assert np.allclose(found.probabilities, expected.softmax(0).numpy(), atol=1e-4)


def test_saved_model_is_the_loaded_one(finished, tmp_path):
    first, path = load_run(finished("caf"), step=0, device="cpu"), tmp_path / "model.safetensors"
    assert len(first.classes) == 3
    first.export(path)
    again = segue.load(str(path), device="cpu")
    assert (again.classes, again.images) == (first.classes, first.images)
    assert again.colours == first.colours and len(set(first.colours)) == 3
    assert again.network.spec() == first.network.spec() and not again.network.training
    for name, value in again.network.state_dict().items():
        assert torch.equal(value, first.network.state_dict()[name]), name


def test_run_on_a_data_set_with_its_own_colours_has_those(finished, tmp_path):
    shutil.copytree(finished("caf"), tmp_path / "run")
    index = tmp_path / "run" / "samples" / "index.json"
    index.write_text(json.dumps({"samples": [], "colours": ["#ff0000", "#00ff00", "#0000ff"]}))
    last, first = (load_run(tmp_path / "run", step, device="cpu").colours for step in (None, 0))
    assert last[1:] == ((255, 0, 0), (0, 255, 0), (0, 0, 255)) and first == last[:3]


@pytest.mark.parametrize("name", ["model.onxn", "model.PTH"])
def test_ending_that_cannot_be_written_is_refused(name, bright, tmp_path):
    for write in (bright.save, bright.export):
        with pytest.raises(segue.UserError, match=r"\.safetensors"):
            write(tmp_path / name)
    with pytest.raises(segue.UserError, match="not an ordinary file"):
        bright.save(tmp_path / "a\0b.safetensors")
    assert not list(tmp_path.iterdir())


def test_place_without_a_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.safetensors").write_text("no model")
    for name, message in (
        ("nowhere", "There is no model"),
        ("a\0b", "There is no model"),
        ("empty", "is not a run folder"),
        ("text.safetensors", "is not a readable model file"),
    ):
        with pytest.raises(segue.UserError, match=message):
            segue.load(tmp_path / name)
    with pytest.raises(segue.UserError, match="device 'tpu9'"):
        segue.load(tmp_path / "text.safetensors", device="tpu9")
