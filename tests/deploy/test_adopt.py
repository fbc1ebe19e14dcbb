"""Adopted models as files: model folders, the formats of their own libraries, and one more step."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_folders import HF
from foreign_networks import CLASSES, MEAN, NETWORKS, STD, OwnUNet, network, normalised, pictures
from own_folder import write_pair
from PIL import Image
from safetensors.torch import load_file, save_file

import segue
from segue.core.errors import UserError
from segue.core.records import read_run
from segue.core.scenario import Step
from segue.deploy.adopt import adopt_from
from segue.deploy.folder_images import folder_images
from segue.deploy.normalisation import surer_normalisation
from segue.models.adopted import trees
from segue.models.adopted.described import plain_settings
from segue.models.adopted.sources import build_module

SHORT = ("train.crop=32", "train.epochs=1", "train.batch_size=2", "train.workers=0", "eval.samples=0")
LIBRARIES = [name for name in NETWORKS if name.startswith(("smp", "hf"))]
CODE = "import torch\nfrom foreign_networks import network\n\ndef build():\n    return network('own U-Net')\n"


def adopted(name: str, classes: tuple[str, ...] = CLASSES) -> segue.Model:
    return segue.adopt(network(name), classes, MEAN, STD)


def grown(name: str) -> segue.Model:
    """A model with two more classes, random rows; background was the second channel."""
    model = segue.adopt(network(name), ("cat", "background", "dog", "cow"), MEAN, STD)
    torch.manual_seed(0)
    model.network.grow(Step(1, (4, 5), (1, 2, 3)), balanced=False)
    return segue.Model(model.network, (*model.classes, "bird", "bus"))


def ids(model: segue.Model) -> np.ndarray:
    return model.predict(pictures(64, 96, 1)[0].permute(1, 2, 0).numpy()).ids


# Model folders


@pytest.mark.parametrize("name", ["torchvision LRASPP", "smp Unet", "hf SegFormer"])
def test_model_folder_holds_an_adopted_model(tmp_path: Path, name: str) -> None:
    model = grown(name)
    model.save(tmp_path / "model")
    again = segue.load(tmp_path / "model", device="cpu")
    assert again.classes == model.classes and again.network.spec() == model.network.spec()
    for key, value in model.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[key])
    assert np.array_equal(ids(again), ids(model))


def test_code_is_run_only_if_the_user_names_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CODE)
    place = f"{tmp_path / 'net.py'}:build"
    model = adopt_from(place, CLASSES, MEAN, STD)
    model.save(tmp_path / "model")
    told = (tmp_path / "model" / "config.json").read_text()
    assert "net.py:build" in told and str(tmp_path) not in told
    with pytest.raises(UserError, match=r"code='file\.py:function'"):
        segue.load(tmp_path / "model", device="cpu")
    again = segue.load(tmp_path / "model", device="cpu", code=place)
    assert np.array_equal(ids(again), ids(model))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_named_code_is_found_again_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "net.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    stored = tmp_path / ("model" if kind == "folder" else "model.safetensors")
    adopt_from("net.py:build", CLASSES, MEAN, STD).save(stored)
    model = segue.load(stored, device="cpu", code="net.py:build")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    larger = segue.extend(
        model, new_images(tmp_path / "new"), tmp_path / "grown", method="mib", overrides=SHORT, device="cpu"
    )
    assert larger.classes[-1] == "bird"


# One more step


def new_images(folder: Path) -> Path:
    for number in range(4):
        write_pair(folder / f"images/{number}.png", folder / f"masks/{number}.png", [0, 1])
        resize_pair(folder, number, (48, 36))
    (folder / "classes.txt").write_text("background\nbird\n")
    return folder


def resize_pair(folder: Path, number: int, size: tuple[int, int]) -> None:
    for kind in ("images", "masks"):
        path = folder / kind / f"{number}.png"
        with Image.open(path) as image:
            image.resize(size, Image.Resampling.NEAREST).save(path)


@pytest.mark.parametrize("name", ["own U-Net", "hf SegFormer"])
def test_extend(tmp_path: Path, name: str) -> None:
    data = new_images(tmp_path / "new")
    model = adopted(name)
    extended = segue.extend(
        model, data, tmp_path / "grown", new=["bird"], method="mib", overrides=SHORT, device="cpu"
    )
    assert extended.classes == (*CLASSES, "bird")
    assert model.network.classifier.sizes == (4,) and extended.network.classifier.sizes == (4, 1)
    if name != "own U-Net":
        again = segue.load(tmp_path / "grown", device="cpu")
        assert np.array_equal(ids(again), ids(extended))


@pytest.mark.parametrize("size", [None, 48])
def test_images_keep_their_size_whatever_the_crops(tmp_path: Path, size: int | None) -> None:
    model = segue.adopt(network("own U-Net"), CLASSES, MEAN, STD, size=size)
    extended = segue.extend(
        model, new_images(tmp_path / "new"), tmp_path / "grown", method="mib", overrides=SHORT, device="cpu"
    )
    assert "train.crop=32" in SHORT and extended.images == model.images


def test_held_out_images_are_tested_as_the_model_predicts(tmp_path: Path) -> None:
    """The scores of new classes are those of the grown model, whatever the crops of the step."""
    data = new_images(tmp_path / "new")
    resize_pair(data, 3, (37, 26))
    for part, keys in (("train", "0\n1"), ("val", "2\n3")):
        (data / f"{part}.txt").write_text(keys)
    words = [*SHORT, "eval.samples=2"]
    model = adopted("own U-Net")
    extended = segue.extend(model, data, tmp_path / "grown", method="mib", overrides=words, device="cpu")
    expected, images = np.zeros((5, 5), dtype=np.int64), folder_images(data, "test")
    for sample in (images.read(place) for place in range(2)):
        np.add.at(expected, (4 * sample.mask, extended.predict(sample.image).ids), 1)
    run = read_run(tmp_path / "grown-run")
    assert np.array_equal(run.steps[-1].matrix.sum(1), expected.sum(1))
    assert np.abs(run.steps[-1].matrix - expected).sum() <= 0.02 * expected.sum(), "equal but for rounding"
    assert run.steps[-1].policy["tested"] == "whole images"
    samples = sorted((tmp_path / "grown-run/samples").glob("*/step1.png"))
    sizes = []
    for path in samples:
        with Image.open(path) as image:
            sizes.append(image.size)
    assert sorted(sizes) == [(37, 26), (48, 36)]


def test_crops_must_fit_the_network(tmp_path: Path) -> None:
    data = new_images(tmp_path / "new")
    words = [word for word in SHORT if "crop" not in word]
    with pytest.raises(UserError, match=r"multiples of 4 pixels; set train\.crop=40"):
        segue.extend(
            adopted("own U-Net"), data, tmp_path / "grown", method="mib", overrides=[*words, "train.crop=42"],
            device="cpu",
        )  # fmt: skip


# The formats of other libraries


@pytest.mark.parametrize("name", LIBRARIES)
def test_libraries_load_what_was_grown(tmp_path: Path, name: str) -> None:
    model, images = grown(name), pictures()
    model.save_native(tmp_path / "own")
    if name.startswith("smp"):
        import segmentation_models_pytorch as smp

        theirs = smp.from_pretrained(str(tmp_path / "own")).eval()
        assert json.loads((tmp_path / "own" / "config.json").read_text())["classes"] == 6
    else:
        from transformers import AutoModelForSemanticSegmentation

        theirs = AutoModelForSemanticSegmentation.from_pretrained(tmp_path / "own").eval()
        names = ["cat", "background", "dog", "cow", "bird", "bus"]
        assert list(theirs.config.id2label.values()) == names and theirs.config.num_labels == 6
    with torch.no_grad():
        answer = trees.logits_of(theirs(normalised(images)))
        same = trees.logits_of(model.network.own_module()(normalised(images)))
    assert answer is not None and same is not None and answer.shape[1] == 6
    assert (answer - same).abs().max() <= 1e-4 * same.abs().max()
    family = name.split()[0]
    again = adopt_from(f"{family}:{tmp_path / 'own'}", mean=MEAN, std=STD, size=None)
    assert again.classes == model.classes and np.array_equal(ids(again), ids(model))


def test_torchvision_loads_what_was_grown(tmp_path: Path) -> None:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model, images = grown("torchvision LRASPP"), pictures()
    model.save_native(tmp_path / "own")
    theirs = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=6).eval()
    theirs.load_state_dict(load_file(tmp_path / "own" / "weights.safetensors"))
    names = json.loads((tmp_path / "own" / "classes.json").read_text())
    assert list(names.values()) == ["cat", "background", "dog", "cow", "bird", "bus"]
    with torch.no_grad():
        answer = theirs(normalised(images))["out"]
        assert torch.allclose(answer, model.network.own_module()(normalised(images))["out"], atol=1e-4)
    place = f"torchvision:lraspp_mobilenet_v3_large@{tmp_path / 'own' / 'weights.safetensors'}"
    again = adopt_from(place, mean=MEAN, std=STD, size=None)
    assert again.classes == model.classes and np.array_equal(ids(again), ids(model))


@pytest.mark.slow
@pytest.mark.parametrize("builder", ["deeplabv3_mobilenet_v3_large", "fcn_resnet50"])
def test_torchvision_loads_what_its_other_builders_made(tmp_path: Path, builder: str) -> None:
    from torchvision.models import get_model

    settings = {"weights": None, "weights_backbone": None}
    torch.manual_seed(0)
    module = get_model(builder, num_classes=4, aux_loss=True, **settings).eval()
    model = segue.adopt(module, CLASSES, MEAN, STD)
    model.network.grow(Step(1, (4, 5), (1, 2, 3)), balanced=False)
    model = segue.Model(model.network, (*CLASSES, "bird", "bus"))
    model.save_native(tmp_path / "own")
    theirs = get_model(builder, num_classes=6, aux_loss=False, **settings).eval()
    stored = load_file(tmp_path / "own" / "weights.safetensors")
    theirs.load_state_dict(stored)
    assert torch.equal(stored["classifier.4.weight"][:4], module.state_dict()["classifier.4.weight"])
    assert list(json.loads((tmp_path / "own" / "classes.json").read_text()).values()) == list(model.classes)


def test_hf_files_tell_names_and_normalisation(tmp_path: Path) -> None:
    grown("hf SegFormer").save_native(tmp_path / "own")
    model = segue.load(f"hf:{tmp_path / 'own'}", device="cpu")
    assert model.classes[:2] == ("background", "cat")
    assert model.network.adoption.normalisation.mean == pytest.approx(MEAN)
    preparation = json.loads((tmp_path / "own" / "preprocessor_config.json").read_text())
    (tmp_path / "own" / "preprocessor_config.json").write_text(
        json.dumps({**preparation, "do_reduce_labels": True})
    )
    closed = segue.load(f"hf:{tmp_path / 'own'}", device="cpu")
    assert closed.closed and closed.classes[:3] == ("no class", "cat", "background")
    named = segue.load(f"hf:{tmp_path / 'own'}", device="cpu", background="dog")
    assert named.classes[0] == "dog" and not named.closed
    (tmp_path / "own" / "preprocessor_config.json").unlink()
    with pytest.raises(UserError, match="how its images are normalised"):
        segue.load(f"hf:{tmp_path / 'own'}", device="cpu")


def test_a_fusion_layer_has_no_place_in_other_libraries(tmp_path: Path) -> None:
    from segue.models.caf import CafLayer

    model = adopted("smp Unet")
    model.network.fusion = CafLayer(model.network.z_channels)
    with pytest.raises(UserError, match="no place for it"):
        model.save_native(tmp_path / "own")
    model.save(tmp_path / "model")
    assert segue.load(tmp_path / "model", device="cpu").network.fusion is not None


# Bad input


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("never",)


def test_whole_pickled_models_are_not_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": Evil()}, tmp_path / "model.pth")
    with pytest.raises(UserError, match=r"safetensors\.torch\.save_file"):
        segue.load(f"torchvision:lraspp_mobilenet_v3_large@{tmp_path / 'model.pth'}")
    assert "never" not in capsys.readouterr().out


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    state = network("torchvision LRASPP").state_dict()
    wrapped = {f"module.{name}": value for name, value in state.items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "wrapped.pth")
    place = f"torchvision:lraspp_mobilenet_v3_large@{tmp_path}"
    adopt_from(f"{place}/wrapped.pth", CLASSES)
    broken = {name: value for name, value in state.items() if "backbone.1." not in name and "low" not in name}
    broken["extra"] = torch.zeros(1)
    save_file(broken, tmp_path / "broken.safetensors")
    with pytest.raises(UserError) as error:
        adopt_from(f"{place}/broken.safetensors", CLASSES)
    lines = str(error.value).splitlines()
    assert "does not fit LRASPP" in lines[0] and len(lines) == 12 and "more" in lines[-1]


@pytest.mark.parametrize("name", ["smp Unet", "hf SegFormer"])
def test_every_differing_key_of_a_folder_counts_and_ten_are_shown(tmp_path: Path, name: str) -> None:
    adopted(name).save_native(tmp_path / "own")
    path = tmp_path / "own" / "model.safetensors"
    state = load_file(path)
    broken = dict(list(state.items())[15:]) | {"extra": torch.zeros(1)}
    save_file(broken, path, metadata={"format": "pt"})
    with pytest.raises(UserError) as error:
        segue.load(f"{name.split()[0]}:{tmp_path / 'own'}", device="cpu", mean=MEAN, std=STD)
    lines = str(error.value).splitlines()
    assert "does not fit" in lines[0] and len(lines) == 12 and lines[-1].strip() == "and 6 more"


def test_a_folder_that_names_another_model_is_refused(tmp_path: Path) -> None:
    adopted("hf SegFormer").save_native(tmp_path / "own")
    (tmp_path / "own" / "adapter_config.json").write_text('{"base_model_name_or_path": "x/y"}')
    with pytest.raises(UserError, match="holds an adapter"):
        segue.load(f"hf:{tmp_path / 'own'}", device="cpu")


@pytest.mark.parametrize("method", ["ssul", "dkd", "star", "acil"])
def test_methods_with_a_classifier_of_their_own_do_not_go_on_with_a_trained_one(
    tmp_path: Path, method: str
) -> None:
    data = new_images(tmp_path / "new")
    with pytest.raises(UserError, match="has a classifier of its own"):
        segue.extend(
            adopted("own U-Net"), data, tmp_path / "out", method=method, overrides=SHORT, device="cpu"
        )
    assert not (tmp_path / "out").exists()


def smp(**settings: object) -> dict[str, object]:
    return {"kind": "smp", "name": "Unet", "config": {"encoder_name": "tu-test_resnet", **settings}}


def upernet(backbone: object) -> dict[str, object]:
    return {"kind": "hf", "config": {"model_type": "upernet", "backbone_config": backbone}}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"kind": "torchvision", "builder": "resnet50", "num_classes": 2}, "no segmentation network"),
        ({"kind": "smp", "name": "Unet", "config": {"encoder_name": "tu-hf-hub:x/y"}}, "names an address"),
        ({"kind": "smp", "name": "from_pretrained", "config": {}}, "has no network"),
        ({"kind": "hf", "config": {"model_type": "upernet", "backbone": "x/y"}}, "to be fetched"),
        (smp(checkpoint_path="weights.pth"), "weights read or fetched .checkpoint_path"),
        (smp(pretrained_cfg={"file": "weights.pth"}), "weights read or fetched .pretrained_cfg"),
        (smp(aux_params={"activation": "/etc/passwd"}), "names an address or a file .activation"),
        (upernet({"model_type": "timm_backbone", "backbone": "hf-hub:x/y"}), "names an address .* .backbone"),
        (
            upernet({"model_type": "timm_backbone", "backbone": "local-dir:x"}),
            "names an address .* .backbone",
        ),
        (upernet({"model_type": "resnet", "use_pretrained_backbone": True}), "weights read or fetched"),
        (upernet("facebook/dinov2-base"), "names an address .* .backbone_config"),
        (upernet(functools.reduce(lambda inner, _: {"a": inner}, range(50), 0)), "more than 20 levels"),
        ({"kind": "hf", "config": {"model_type": "segformer", "depths": "x"}}, "transformers"),
        ({"kind": "python", "code": "/tmp/evil.py:run"}, "run only if you name it"),
        ({"kind": "mmseg"}, "no family of networks"),
    ],
)
def test_descriptions_of_strangers_run_and_fetch_nothing(source: dict[str, object], words: str) -> None:
    for library, kind in (("segmentation_models_pytorch", "smp"), ("transformers", "hf")):
        if source["kind"] == kind:
            pytest.importorskip(library)
    with pytest.raises(UserError, match=words):
        build_module(source)


def test_names_of_code_are_dropped_from_a_description_and_names_of_classes_stay() -> None:
    pytest.importorskip("transformers")
    said = {
        "attn_implementation": "x/kernel",
        "auto_map": {"AutoConfig": "code.Evil"},
        "_name_or_path": "x/y",
    }
    names = {"0": "wall / fence", "1": "a:b"}
    config = {
        "model_type": "segformer",
        **said,
        "id2label": names,
        "backbone_config": {**said, "id2label": names},
    }
    assert plain_settings(config) == {
        "model_type": "segformer",
        "id2label": names,
        "backbone_config": {"id2label": names},
    }
    assert build_module({"kind": "hf", "config": {**HF, **said}}).config.num_labels == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hf:nowhere", "names no network"),
        ("smp:nowhere", "names no network"),
        ("torchvision:lraspp_mobilenet_v3_large", "torchvision:NAME@FILE"),
        ("torchvision:lraspp_mobilenet_v3_large@nowhere.pth", "does not exist"),
        ("nowhere.py:build", "name a Python file"),
    ],
)
def test_sources_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        segue.load(text, device="cpu")


def test_own_code_needs_names(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(CODE)
    with pytest.raises(UserError, match="names of its channels"):
        segue.load(f"{tmp_path / 'net.py'}:build", device="cpu")
    with pytest.raises(UserError, match=r"no function 'biuld'\. Did you mean 'build'"):
        segue.load(f"{tmp_path / 'net.py'}:biuld", device="cpu")


def test_a_module_of_ones_own_has_no_library(tmp_path: Path) -> None:
    model = segue.adopt(network("own U-Net"), CLASSES, MEAN, STD)
    assert isinstance(model.network.own_module(), OwnUNet)
    with pytest.raises(UserError, match="belongs to no family"):
        model.save_native(tmp_path / "own")


class Contrast(torch.nn.Module):
    """Sure of its answers where pixels lie far from 0, as grey ones do without mean and std."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 1)
        with torch.no_grad():
            self.first.weight.zero_()[:, 0, 1, 1] = torch.tensor([1.0, 2.0, 3.0, 4.0])
            self.first.bias.zero_()
            self.out.weight.copy_(3 * torch.eye(4)[:, :, None, None])
            self.out.bias.zero_()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(self.first(images))


def test_a_normalisation_that_makes_the_network_unsure_is_noticed() -> None:
    images = [picture.permute(1, 2, 0).numpy() for picture in pictures()]
    unsure = segue.adopt(Contrast(), CLASSES, [127.0] * 3, [5e4] * 3, white=255).network
    before = unsure.mean.clone()
    remark = surer_normalisation(unsure, images, 32)
    assert remark is not None and "adopt.mean=" in remark and torch.equal(unsure.mean, before)
    sure = segue.adopt(Contrast(), CLASSES, [0.0] * 3, [1.0] * 3).network
    assert surer_normalisation(sure, images, 32) is None


def test_a_run_on_a_network_of_a_recipe_is_extended(tmp_path: Path) -> None:
    from foreign_folders import tiny_folder
    from pets import QUIET
    from short_runs import SHORT as TINY

    words = [*TINY, f"model.network={tiny_folder(tmp_path / 'net', 'smp')}", "model.pretrained=false"]
    recipe = segue.resolve("mib", "scenes", "2-1", overrides=words)
    segue.run(recipe, tmp_path / "run", display=QUIET)
    segue.load(tmp_path / "run", device="cpu").save(tmp_path / "model")
    (tmp_path / "net" / "config.json").unlink()
    data = new_images(tmp_path / "new")
    for source in ("run", "model"):
        out = tmp_path / f"grown-{source}"
        frozen = [*SHORT, "model.frozen_stages=auto"]
        grown = segue.extend(tmp_path / source, data, out, overrides=frozen, device="cpu", display=QUIET)
        assert grown.classes[-1] == "bird" and grown.network.classifier.sizes == (3, 1, 1)
        assert not any(parameter.requires_grad for parameter in grown.network.encoder_parameters())
    grown.save_native(tmp_path / "native")
