"""Networks from elsewhere on the command line: shown, grown, given back, or refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from foreign_networks import CLASSES, OwnUNet, lively, network, normalised, pictures
from own_folder import write_pair
from safetensors.torch import load_file, save_file

NAMES = f"adopt.classes={','.join(CLASSES)}"
NUMBERS = ("adopt.mean=0.4,0.5,0.6", "adopt.std=0.2,0.3,0.25")
SHORT = ("train.crop=32", "train.batch_size=2", "train.workers=0", "eval.samples=0", "adopt.size=32")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(network("torchvision LRASPP").state_dict(), path)
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for number in range(4):
        write_pair(tmp_path / f"new/images/{number}.png", tmp_path / f"new/masks/{number}.png", [0, 1])
    (tmp_path / "new/classes.txt").write_text("background\nbird\n")
    return tmp_path / "new"


@pytest.mark.parametrize("names", [CLASSES, ("road", "cat", "dog", "cow")], ids=["background", "none"])
def test_a_torchvision_network_grows_and_comes_back(segue, weights, images, tmp_path, names):
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    (tmp_path / "names.txt").write_text("\n".join(names))
    source, out = f"torchvision:lraspp_mobilenet_v3_large@{weights}", tmp_path / "grown"
    said = (f"adopt.classes={tmp_path / 'names.txt'}", *SHORT)
    code, text, err = segue("extend", source, images, "--out", out, *said, "--epochs", "1")
    assert code in (0, 1), text + err
    table = err.split("epoch")[0]
    for part in (
        "classifier.low_classifier (Conv2d 40 -> 4, 1 x 1)",
        "z ",
        "0.485, 0.456, 0.406",
        "(assumed",
    ):
        assert part in table
    closed = names is not CLASSES
    assert ("none: unlabelled pixels mean some old class" in table) == closed
    assert str(out / "native") in err and "of memory" in err
    theirs = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5).eval()
    theirs.load_state_dict(load_file(out / "native" / "weights.safetensors"))
    assert [*json.loads((out / "native" / "classes.json").read_text()).values()] == [*names, "bird"]
    with torch.no_grad():
        assert theirs(normalised(pictures()))["out"].isfinite().all()
    code, text, _ = segue("export", out, tmp_path / "again", "--native")
    assert code == 0
    told = text.splitlines()[-1].removeprefix("Next, in Python: ")
    assert told.startswith("import") and str(tmp_path / "again") in told
    exec(compile(told, "next", "exec"))  # what it says can be typed
    ours, again = (
        load_file(folder / "weights.safetensors") for folder in (out / "native", tmp_path / "again")
    )
    assert all(torch.equal(ours[name], again[name]) for name in ours)


@pytest.mark.parametrize("again", ["--overwrite", "--resume"])
def test_a_grown_network_is_written_again(segue, weights, images, tmp_path, again):
    out = tmp_path / "grown"
    source = f"torchvision:lraspp_mobilenet_v3_large@{weights}"
    words = ("extend", source, images, "--out", out, NAMES, *SHORT, "--epochs", "1")
    assert segue(*words)[0] in (0, 1)
    (out / "native" / "classes.json").write_text("of the model before")
    code, _, err = segue(*words, again)
    assert code in (0, 1), err
    assert [*json.loads((out / "native" / "classes.json").read_text()).values()] == [*CLASSES, "bird"]
    (out / "notes.txt").write_text("mine")
    code, _, err = segue(*words, "--overwrite")
    assert code == 2 and "notes.txt" in err and "epoch" not in err, "said before training"


def test_export_makes_a_model_folder_that_other_commands_take(segue, weights, tmp_path):
    source = f"torchvision:lraspp_mobilenet_v3_large@{weights}"
    assert segue("predict", source, tmp_path, "--out", tmp_path / "no")[0] == 2
    code, _, err = segue("export", source, tmp_path / "model", NAMES, *NUMBERS, "adopt.background=cow")
    assert code == 0 and "background  cow" in err, err
    photo = tmp_path / "photos" / "0.png"
    write_pair(photo, tmp_path / "mask.png", [0])
    assert segue("predict", tmp_path / "model", photo, "--out", tmp_path / "out")[0] == 0


@pytest.fixture
def code_file(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom foreign_networks import OwnUNet\n"
        "def build():\n    return OwnUNet().eval()\n"
        "def several():\n    return OwnUNet(ending=torch.sigmoid).eval()\n"
        "def squared():\n    return OwnUNet(ending=torch.square).eval()\n"
    )
    return tmp_path / "net.py"


@pytest.mark.parametrize(
    ("function", "words", "sentence"),
    [
        ("build", (), "does not tell the names of its channels"),
        ("build", (NAMES,), "does not tell how its images are normalised"),
        ("build", ("adopt.classes=a,b", *NUMBERS), "4 channels and 2 classes"),
        ("build", ("adopt.classes=nowhere.txt", *NUMBERS), "nowhere.txt cannot be read"),
        ("build", (NAMES, "adopt.mean=grey", "adopt.std=1,1,1"), "takes three numbers"),
        ("build", (NAMES, "adopt.mean=0,0", "adopt.std=1,1,1"), "three numbers are needed"),
        ("build", (NAMES, *NUMBERS, "adopt.clasifier=out"), "adopt.clasifier"),
        ("build", (NAMES, *NUMBERS, "adopt.classifier=third.0"), "is no convolution with 4 outputs"),
        ("build", (NAMES, *NUMBERS, "adopt.background=catt"), "Did you mean 'cat'"),
        ("several", (NAMES, *NUMBERS), "several classes per pixel (multilabel)"),
        ("squared", (NAMES, *NUMBERS), "adopt.classifier=PATH"),
    ],
)
def test_one_sentence_and_exit_code_2(segue, code_file, images, tmp_path, function, words, sentence):
    source = f"{code_file}:{function}"
    code, _, err = segue("extend", source, images, "--out", tmp_path / "grown", *words)
    assert code == 2 and sentence in err and "Traceback" not in err, err
    assert not (tmp_path / "grown").exists()


class Whole:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("never",)


def test_pickled_models_and_weights_that_do_not_fit(segue, weights, images, tmp_path):
    torch.save(Whole(), tmp_path / "whole.pth")
    renamed = {
        name if "classifier" in name else f"{name}s": value for name, value in load_file(weights).items()
    }
    save_file(renamed, tmp_path / "other.safetensors")
    for name, sentence in (("whole.pth", "safetensors.torch.save_file"), ("other.safetensors", "more")):
        source = f"torchvision:lraspp_mobilenet_v3_large@{tmp_path / name}"
        code, text, err = segue("extend", source, images, "--out", tmp_path / "grown", NAMES)
        assert code == 2 and sentence in err and "never" not in text, err
        assert len(err.splitlines()) <= 13


def test_words_of_adoption_are_for_networks_from_elsewhere(segue, images, tmp_path):
    from segue.deploy.adopt import adopt

    model = adopt(lively(OwnUNet()), CLASSES, (0.5,) * 3, (0.5,) * 3)
    model.save(tmp_path / "model")
    code, _, err = segue("extend", tmp_path / "model", images, "--out", tmp_path / "grown", "adopt.size=32")
    assert code == 2 and "no network from elsewhere" in err


KELP = Path(__file__).parents[3] / "shared/models/lraspp_mobilenet_v3_large_kelp_species.pth"


@pytest.mark.data
@pytest.mark.skipif(not KELP.is_file(), reason="the checkpoint is not here")
def test_a_real_torchvision_checkpoint(segue, images, tmp_path):
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    source, names = f"torchvision:lraspp_mobilenet_v3_large@{KELP}", "background,presence,macro,nereo"
    said = (f"adopt.classes={names}", *SHORT, "--epochs", "1")
    assert segue("extend", source, images, "--out", tmp_path / "grown", *said)[0] in (0, 1)
    theirs = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5).eval()
    theirs.load_state_dict(load_file(tmp_path / "grown/native/weights.safetensors"))
    code, text, _ = segue("export", tmp_path / "grown", tmp_path / "grown.onnx")
    assert code == 0 and "0 % of pixels changed" in text


def test_parts_and_background_as_options(segue, code_file, images, tmp_path):
    source, out = f"{code_file}:build", tmp_path / "grown"
    words = (NAMES, *NUMBERS, *SHORT, "--epochs", "1", "--method", "mib")
    named = ("--classifier", "out", "--encoder", "third", "--background", "cow")
    code, text, err = segue("extend", source, images, "--out", out, *words, *named)
    assert code in (0, 1), text + err
    assert "z           output of third" in err and "background  cow" in err


def test_an_onnx_file_teaches_a_student(segue, tmp_path):
    from outer_files import MEAN, STD, write_birds, write_onnx

    data, model = write_birds(tmp_path / "birds"), write_onnx(tmp_path / "m.onnx")
    numbers = [f"adopt.{key}={','.join(map(str, values))}" for key, values in (("mean", MEAN), ("std", STD))]
    words = ("adopt.classes=background,cat,dog", *numbers, *SHORT[:-1], "--epochs", "1")
    code, text, err = segue("extend", model, data, "--out", tmp_path / "no", *words)
    assert code == 2 and "--student mobilenetv2_100" in err
    code, text, err = segue("extend", model, data, "--out", tmp_path / "grown", "--student", "tiny", *words)
    assert code in (0, 1), text + err
    assert "its logits alone" in err and "Verdict" in text
    assert (tmp_path / "grown-run" / "verdict.json").is_file() and not (
        tmp_path / "grown" / "native"
    ).exists()
    student = ("--student", "resnet18")
    code, _, err = segue("extend", model, data, "--out", tmp_path / "other", *student, *words)
    assert code == 2 and "Where do the weights of resnet18 come from" in err
    student = ("--student", "tiny", "--method", "caf")
    code, _, err = segue("extend", model, data, "--out", tmp_path / "other", *student, *words)
    assert code == 2 and "outputs alone are known" in err.replace("\n", " ")
    assert not (tmp_path / "other").exists()


def test_a_network_of_another_library_in_a_run(segue, tmp_path):
    from foreign_folders import tiny_folder
    from short_runs import SHORT as TINY

    name = tiny_folder(tmp_path / "net", "smp")
    three = ("mib", "--on", "scenes", "--split", "2-1", *TINY, f"model.network={name}")
    code, _, err = segue("train", *three, "--out", tmp_path / "run")
    assert code == 2 and "model.pretrained=false" in err
    code, text, err = segue("train", *three, "model.pretrained=false", "--out", tmp_path / "run")
    assert code == 0, err
    for verb in (
        ("show", *three),
        ("eval", tmp_path / "run"),
        ("plan", tmp_path / "run"),
        ("list", "backbones"),
    ):
        code, text, err = segue(*verb)
        assert code == 0 and ("smp:Unet" in text or verb[0] == "eval"), text + err
    code, text, err = segue("export", tmp_path / "run", tmp_path / "native", "--native")
    assert code == 0 and (tmp_path / "native" / "model.safetensors").is_file(), err
