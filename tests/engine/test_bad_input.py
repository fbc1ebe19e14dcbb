"""Bad input: a sentence that names the file or the value, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_runs import arguments, files

from segue.core import plugins
from segue.engine import run as run_module

SMALL = (
    "model.backbone=tiny",
    "model.head=tiny",
    "model.output_stride=8",
    "train.crop=32",
    "train.batch_size=4",
    "train.epochs=1",
    "train.workers=0",
    "eval.samples=1",
)
KEYS = [f"2007_00000{number}" for number in range(8)]


def write_mask(path: Path, *ids: int, size: tuple[int, int] = (40, 36)) -> None:
    """Stripes of the given ids under a band of background."""
    width, height = size
    mask = np.zeros((height, width), dtype=np.uint8)
    mask[8:] = np.resize(np.repeat(ids, 4), width)
    Image.fromarray(mask).convert("P").save(path)


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    """Eight images of VOC, each with the classes aeroplane (1) and bicycle (2) and some void."""
    root = tmp_path / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    noise = np.random.default_rng(0)
    for key in KEYS:
        pixels = noise.integers(0, 256, (36, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "JPEGImages" / f"{key}.jpg")
        write_mask(root / "SegmentationClass" / f"{key}.png", 1, 2, 255)
    for name, keys in (("train", KEYS[:6]), ("val", KEYS[6:])):
        (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text("\n".join(keys) + "\n")
    return root


def voc_words(voc: Path, out: Path, *words: str, split: str = "1/2", method: str = "mib") -> list[str]:
    return [
        "train",
        method,
        "--on",
        "voc",
        "--split",
        split,
        "--out",
        str(out),
        f"data.root={voc}",
        *SMALL,
        *words,
    ]


def test_the_little_voc_trains(voc, tmp_path, command):
    """Otherwise the tests below would prove nothing."""
    outcome = command(*voc_words(voc, tmp_path / "run"))
    assert outcome.code == 0, outcome.err
    assert "steps/1.json" in files(tmp_path / "run")


def lose_folder(voc: Path) -> str:
    voc.rename(voc.with_name("elsewhere"))
    return f"The data folder {voc} does not exist"


def lose_images(voc: Path) -> str:
    (voc / "JPEGImages").rename(voc / "Images")
    return f"{voc} is not a VOC 2012 folder"


def lose_list(voc: Path) -> str:
    path = voc / "ImageSets" / "Segmentation" / "train.txt"
    path.unlink()
    return f"The image list {path} cannot be read: No such file or directory"


def lose_test_list(voc: Path) -> str:
    path = voc / "ImageSets" / "Segmentation" / "val.txt"
    path.unlink()
    return f"The image list {path} cannot be read"


def empty_list(voc: Path) -> str:
    path = voc / "ImageSets" / "Segmentation" / "train.txt"
    path.write_text("\n")
    return f"The image list {path} is empty"


def lose_mask(voc: Path) -> str:
    path = voc / "SegmentationClass" / f"{KEYS[3]}.png"
    path.unlink()
    return f"{voc / 'JPEGImages' / KEYS[3]}.jpg has no mask: {path} is missing"


def lose_image(voc: Path) -> str:
    path = voc / "JPEGImages" / f"{KEYS[7]}.jpg"
    path.unlink()
    return f"{path} is missing"


def other_size(voc: Path) -> str:
    path = voc / "SegmentationClass" / f"{KEYS[2]}.png"
    write_mask(path, 1, 2, size=(36, 40))
    return f"{path} is 36 x 40 pixels, but its image {voc / 'JPEGImages' / KEYS[2]}.jpg is 40 x 36"


def truncated_image(voc: Path) -> str:
    path = voc / "JPEGImages" / f"{KEYS[0]}.jpg"
    path.write_bytes(path.read_bytes()[:400])
    return f"{path} cannot be read"


def text_as_image(voc: Path) -> str:
    path = voc / "JPEGImages" / f"{KEYS[1]}.jpg"
    path.write_text("not an image")
    return f"{path} is not an image"


def truncated_mask(voc: Path) -> str:
    path = voc / "SegmentationClass" / f"{KEYS[6]}.png"
    path.write_bytes(path.read_bytes()[:-30])
    return f"{path} cannot be read"


def colours_as_mask(voc: Path) -> str:
    path = voc / "SegmentationClass" / f"{KEYS[5]}.png"
    Image.new("RGB", (40, 36)).save(path)
    return f"{path} is a mask of mode RGB"


def strange_value(voc: Path) -> str:
    path = voc / "SegmentationClass" / f"{KEYS[4]}.png"
    write_mask(path, 1, 77)
    return f"{path} holds the value 77, which is no class id of voc (classes 1 to 20, background 0, void 255)"


def no_new_class(voc: Path) -> str:
    for key in KEYS:
        write_mask(voc / "SegmentationClass" / f"{key}.png", 1)
    return "Step 1 has 0 training images with its new classes (bicycle)"


@pytest.mark.parametrize(
    "spoil",
    [
        lose_folder,
        lose_images,
        lose_list,
        lose_test_list,
        empty_list,
        lose_mask,
        lose_image,
        other_size,
        truncated_image,
        text_as_image,
        truncated_mask,
        colours_as_mask,
        strange_value,
        no_new_class,
    ],
)
def test_bad_data(spoil: Callable[[Path], str], voc, tmp_path, command):
    message = spoil(voc)
    outcome = command(*voc_words(voc, tmp_path / "run"))
    assert outcome.code == 2
    assert re.search("^error: ", outcome.err, re.MULTILINE) and message in outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_image_that_is_damaged_while_training(workers, voc, tmp_path, command, monkeypatch):
    """The index was made of good files; a later read meets a bad one and stops the run."""
    build_method = run_module.build_method

    def spoil_first(*arguments: object, **options: object) -> object:
        text_as_image(voc)
        return build_method(*arguments, **options)

    monkeypatch.setattr(run_module, "build_method", spoil_first)
    outcome = command(*voc_words(voc, tmp_path / "run", f"train.workers={workers}"))
    assert outcome.code == 2 and f"{KEYS[1]}.jpg is not an image" in outcome.err
    assert "Traceback" not in outcome.err


def test_data_set_without_its_folder(tmp_path, command):
    outcome = command("train", "mib", "--on", "voc", "--split", "15-5", "--out", tmp_path / "run", *SMALL)
    assert outcome.code == 2 and "add data.root=FOLDER" in outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["--split", "1,2/2,3"], ["'barred square' (id 2) stands twice in the split"]),
        (["--split", "1,2/9"], ["'9' is no class of scenes (ids 1 to 3)"]),
        (
            ["--split", "barred disc/bared square"],
            ["'bared square' is no class", "Did you mean 'barred square'?"],
        ),
        (["--split", "1,2//3"], ["Step 1 of the split has no class"]),
        (["--split", "two-one"], ["Split 'two-one' is not understood", "Write B-I"]),
        (["--split", "4-1"], ["Split '4-1' starts with 4 classes, but scenes has 3"]),
        (["--split", "2-0"], ["Split '2-0' adds 0 classes"]),
        (["--split", "2-2"], ["Split '2-2' adds 2 classes", "only 1 are left"]),
        (["scenario.order=[1, 2]"], ["lacks 1 classes", "'barred triangle'"]),
        (["scenario.order=[1, 2, 2]"], ["'barred square' stands twice in the class order"]),
        (
            ["--mode", "overlaped"],
            ["'scenario.mode' is 'overlaped'", "'overlapped', 'disjoint', 'sequential' or 'divided'"],
        ),
        (["scenario.void=keep"], ["'scenario.void' is 'keep'"]),
        (["--on", "scene"], ["There is no dataset 'scene'", "Did you mean 'scenes'?"]),
        (["method.name=mibb"], ["There is no method 'mibb'", "Did you mean 'mib'?"]),
        (["method.name=other.py"], ["There is no file", "other.py"]),
        (["model.backbone=resnet1O1"], ["There is no backbone 'resnet1O1'", "Did you mean 'resnet101'?"]),
        (["model.output_stride=16"], ["tiny has output stride 8"]),
        (["model.frozen_stages=9"], ["model.frozen_stages is 9, but the backbone has 4 stages"]),
        (
            [
                "model.backbone=test_resnet",
                "model.output_stride=32",
                "model.frozen_stages=1",
                "model.pretrained=false",
            ],
            ["model.frozen_stages=1 would freeze a network that has learned nothing", "model.weights=FILE"],
        ),
        (["optim.learning_rate=0.1"], ["Unknown key 'optim.learning_rate'"]),
        (["optim.lr_nxt=0.1"], ["Unknown key 'optim.lr_nxt'", "Did you mean 'optim.lr_next'?"]),
        (["trian.epochs=2"], ["Unknown key 'trian'", "Did you mean 'train'?"]),
        (
            ["method.params.kd_wight=1"],
            ["Unknown key 'method.params.kd_wight'", "Did you mean 'method.params.kd_weight'?"],
        ),
        (["data.sise=32"], ["Unknown key 'data.sise'", "Did you mean 'data.size'?"]),
        (["epochs=3"], ["Unknown key 'epochs'", "Did you mean 'train.epochs'?"]),
        (["train.epochs=many"], ["'train.epochs' is 'many'"]),
        (["train.epochs=0"], ["'train.epochs' is 0"]),
        (["train.batch_size=1"], ["'train.batch_size' is 1"]),
        (["train.precision=fp8"], ["'train.precision' is 'fp8'"]),
        (["train.seed=-1"], ["'train.seed' is -1"]),
        (["optim.lr_first=nan"], ["'optim.lr_first' is 'nan'"]),
        (["optim=5"], ["'optim' is a section"]),
        (["method.params=5"], ["'params' is a section"]),
        (["data.classes=99"], ["'data.classes' is 99"]),
        (["epochs"], ["'epochs' is not understood: settings are written section.key=value"]),
        (["train.epochs=["], ["'train.epochs=[': the value is not valid YAML"]),
        (
            ["train.accumulate=8"],
            ["leaves a micro-batch of one image", "batches of 8 at step 0"],
        ),
        (
            ["train.batch_size=5", "train.accumulate=3"],
            ["leaves a micro-batch of one image"],
        ),
        (["data.train=1"], ["Step 0 has 1 training images", "it needs at least 2"]),
        (
            ["scenario.hold_out=0.999"],
            ["Step 0 has 0 training images", "a smaller scenario.hold_out, or add"],
        ),
        (
            ["scenario.hold_out=1.0e-9"],
            ["No held-out image shows a class", "Hold out more: scenario.hold_out"],
        ),
        (["data.test=1", "data.seed=1", "scenario.split=3/1,2"], ["No test image shows a class", "step 0"]),
        (["--device", "nonsense"], ["The device 'nonsense' cannot be used here"]),
        (["scenario.manifest=gone.json"], ["Cannot read the manifest gone.json"]),
        (["--seed", "-3"], ["--seed -3: ", "0."]),
    ],
)
def test_bad_words(words, messages, tmp_path, command):
    outcome = command(*arguments("mib", tmp_path / "run"), *words)
    assert outcome.code == 2, outcome.err
    for message in messages:
        assert message in " ".join(outcome.err.split()), outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert not (tmp_path / "run").exists()


def test_parts_of_one_image_are_no_problem_once_the_norm_is_frozen(tmp_path, command):
    words = ["train.accumulate=9", "train.batch_size=20", "train.epochs=1", "train.epochs_next=1"]
    assert command(*arguments("mib", tmp_path / "frozen"), *words).code == 0
    outcome = command(*arguments("mib", tmp_path / "batch"), *words, "train.norm=batch")
    assert outcome.code == 2 and "batches of 19 at step 1" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mib"], f"Which data set? Add --on NAME ({', '.join(plugins.names('dataset'))})."),
        (["mib", "--on", "scenes"], "Which split? Add --split B-I"),
        (["mibb", "--on", "scenes", "--split", "2-1"], "There is no method 'mibb'. Did you mean 'mib'?"),
        (["gone.yaml"], "Cannot read gone.yaml: No such file or directory."),
        (["gone.py", "--on", "scenes", "--split", "2-1"], "There is no file"),
        (["runs/gone", "--resume"], "runs/gone is not a run folder: it has no recipe.yaml."),
    ],
)
def test_bad_target(words, message, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = command("train", *words)
    assert outcome.code == 2 and message in outcome.err
    assert [name for name in files(tmp_path) if not name.startswith("cache/")] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scenario: {dataset: scenes, split: 2-1}\nmethod: {name: mib}\nmodle: {}\n", "Unknown key 'modle'"),
        ("scenario: scenes\n", "'scenario' is a section"),
        ("scenario: {dataset: scenes\n", "is not valid YAML"),
        ("- 1\n", "should hold 'section: {key: value}' entries"),
        ("", "should hold 'section: {key: value}' entries"),
        ("method: {name: mib}\n", "Which data set?"),
        ("scenario: {dataset: scenes, split: 2-1}\n", "Which method?"),
    ],
)
def test_bad_recipe_file(text, message, tmp_path, command):
    (tmp_path / "my.yaml").write_text(text)
    outcome = command("train", tmp_path / "my.yaml", "--out", tmp_path / "run")
    assert outcome.code == 2 and message in outcome.err
    assert not (tmp_path / "run").exists()


def test_method_file_without_a_method(tmp_path, command):
    (tmp_path / "mine.py").write_text("x = 1\n")
    outcome = command(*arguments(tmp_path / "mine.py", tmp_path / "run"))
    assert outcome.code == 2 and "add a line 'METHOD = YourClass'" in outcome.err


def test_real_process_ends_with_code_2_and_a_sentence(voc, tmp_path):
    message = strange_value(voc)
    done = subprocess.run(
        [sys.executable, "-m", "segue", *voc_words(voc, tmp_path / "run")],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    advice = "A list of all such files, to leave them out: segue data check --skip-bad FILE"
    assert done.stderr.endswith(f"\nerror: {message}.\n{advice}\n") and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_compile_and_checkpointing_exclude_each_other(tmp_path, command):
    words = arguments("mib", tmp_path / "run")
    outcome = command(*words, "train.compile=true", "train.checkpointing=true")
    assert outcome.code == 2 and "do not go together: choose one" in outcome.err


def test_end_of_a_file_in_a_method_file_is_its_own_error(tmp_path: Path, command) -> None:
    """typer would call it an abort."""
    (tmp_path / "mine.py").write_text(
        "from segue.methods.finetune import METHOD as Finetune\n\n\n"
        "class Mine(Finetune):\n    def begin_step(self, context):\n"
        "        raise EOFError('nothing in it')\n\n\n"
        "METHOD = Mine\n"
    )
    outcome = command(*arguments(tmp_path / "mine.py", tmp_path / "run"))
    assert outcome.code == 2 and "mine.py, line 6: EOFError: nothing in it" in outcome.err
