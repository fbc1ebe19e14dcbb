"""Networks of other libraries as the network of a recipe: `model.network=smp:...`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from foreign_folders import HF, tiny_folder
from safetensors.torch import load_file, save_file
from tiny_runs import assert_equal_runs, quiet_run, recipe, run_until, weights

from segue.core.config import RunConfig, to_yaml
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import read_run
from segue.deploy.load import load_run
from segue.engine.build import build_method
from segue.engine.folder import identity
from segue.engine.recipe import complete, stored_recipe
from segue.engine.restore import evaluate_run
from segue.engine.start import _of_method
from segue.methods.base import Method
from segue.models.adopted.network import AdoptedNetwork
from segue.models.build import network_from_spec
from segue.plan.plan import make_plan
from segue.plan.preflight import need_of

CPU = torch.device("cpu")
SHORT = ("model.pretrained=false", "train.epochs=1", "train.epochs_next=1", "eval.samples=0")


def tiny(folder: Path, family: str, *words: str, method: str = "mib") -> RunConfig:
    return recipe(method, f"model.network={tiny_folder(folder, family)}", *words)


def built(config: RunConfig) -> tuple[Method, AdoptedNetwork]:
    method = build_method(config, CPU)
    assert isinstance(method.model, AdoptedNetwork)
    return method, method.model


@pytest.mark.parametrize("family", ["smp", "hf"])
def test_a_run_resumes_bit_for_bit_and_needs_no_folder_any_more(tmp_path: Path, family: str) -> None:
    words = ("model.pretrained=false", "train.epochs=1", "train.epochs_next=2")
    config = tiny(tmp_path / "net", family, *words)
    quiet_run(config, tmp_path / "whole")
    stopped = tmp_path / "stopped"
    run_until(config, stopped, 2)
    (tmp_path / "net" / "config.json").unlink()  # the recipe of the run says all
    again = stored_recipe(stopped)
    run_until(again, stopped, 4)
    quiet_run(again, stopped, resume=True)
    assert_equal_runs(stopped, tmp_path / "whole")
    matrices, _, _ = evaluate_run(stopped)
    record = read_run(stopped).steps[-1]
    assert (next(iter(matrices.values())) == record.matrix).all()
    assert {"smp": "segmentation_models_pytorch", "hf": "transformers"}[family] in record.versions
    model = load_run(stopped, device="cpu")
    model.save(tmp_path / "model")
    model.save_native(tmp_path / "native")
    assert {"config.json", "model.safetensors"} <= {path.name for path in (tmp_path / "native").iterdir()}


def test_a_complete_recipe_describes_the_network_and_reads_back(tmp_path: Path) -> None:
    config = tiny(tmp_path, "hf", "model.pretrained=false")
    assert config.model.backbone == "hf:segformer"
    assert config.model.network["source"]["config"]["hidden_sizes"] == HF["hidden_sizes"]
    again = complete(yaml.safe_load(to_yaml(config)))
    assert again.model == config.model and identity(again) == identity(config)


def test_named_sizes_and_encoders() -> None:
    pytest.importorskip("segmentation_models_pytorch")
    small = recipe("mib", "model.network=smp:Linknet/tu-test_resnet", "model.pretrained=false")
    assert small.model.backbone == "smp:Linknet/tu-test_resnet"
    assert built(small)[1].parts.encoder == "encoder"
    assert recipe("mib", "model.network=smp:FPN").model.backbone == "smp:FPN/resnet34"
    sizes = recipe("mib", "model.network=hf:segformer-b2").model.network["source"]["config"]
    assert sizes["depths"] == [3, 4, 6, 3]


# Weights


def test_training_begins_with_the_weights_of_an_smp_folder(tmp_path: Path) -> None:
    smp = pytest.importorskip("segmentation_models_pytorch")
    net = smp.Unet(
        "tu-test_resnet.r160_in1k", encoder_weights=None, decoder_channels=(16, 16, 8, 8, 8), classes=3
    )
    net.save_pretrained(str(tmp_path / "net"))
    config = recipe("mib", f"model.network=smp:{tmp_path / 'net'}")
    assert config.model.weights == str(tmp_path / "net" / "model.safetensors")
    ours = built(config)[1].body.state_dict()
    for name, value in load_file(config.model.weights).items():
        assert name.startswith("segmentation_head.0.") or torch.equal(ours[name], value)
    assert not any(name.startswith("segmentation_head.0.") for name in ours)  # rows come with the steps


def test_training_begins_with_the_weights_and_the_normalisation_of_a_hugging_face_folder(
    tmp_path: Path,
) -> None:
    hf = pytest.importorskip("transformers")
    config = hf.SegformerConfig(**{key: value for key, value in HF.items() if key != "model_type"})
    stored = hf.SegformerForSemanticSegmentation(config)
    stored.save_pretrained(str(tmp_path))
    numbers = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(numbers))
    network = built(recipe("mib", f"model.network=hf:{tmp_path}"))[1]
    assert network.adoption.normalisation.mean == [0.1, 0.2, 0.3]
    ours = network.body.state_dict()
    theirs = {name: value for name, value in stored.state_dict().items() if "head.classifier." not in name}
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_a_file_may_hold_the_encoder_alone(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    whole = timm.create_model("test_resnet")
    save_file(whole.state_dict(), tmp_path / "encoder.safetensors")
    words = (f"model.weights={tmp_path / 'encoder.safetensors'}", "model.network=smp:Unet/tu-test_resnet")
    network = built(recipe("mib", *words))[1]
    assert torch.equal(network.body.encoder.model.state_dict()["conv1.0.weight"], whole.conv1[0].weight)


def test_weights_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    pytest.importorskip("segmentation_models_pytorch")
    save_file({"conv1.0.weight": torch.zeros(1)}, tmp_path / "encoder.safetensors")
    words = (f"model.weights={tmp_path / 'encoder.safetensors'}", "model.network=smp:Unet/tu-test_resnet")
    with pytest.raises(UserError) as caught:
        build_method(recipe("mib", *words), CPU)
    lines = str(caught.value).splitlines()
    assert len(lines) == 12 and "more" in lines[-1] and all("is missing" in line for line in lines[1:-1])


# What a recipe can and cannot ask for


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["model.network=smpp:Unet"], "Did you mean 'smp'"),
        (["model.network=hf:segformer-b9"], "Did you mean 'segformer-b"),
        (["model.network=smp:Unett"], "Did you mean 'Unet'"),
        (["model.network=smp:Unet/resnet81"], "no encoder 'resnet81'. Did you mean 'resnet"),
        (["model.network=smp:no/such/folder"], "there is no such folder"),
        (["model.network=torchvision:fcn_resnet5", "model.pretrained=false"], "Did you mean 'fcn_resnet50'"),
        (["model.network=smp:Unet/tu-test_resnet", "model.pretrained=null"], "Where do the weights"),
        (["model.network=hf:segformer-b0", "model.pretrained=true"], "fetches no weights"),
        (["model.network=smp:Unet/tu-test_resnet", "model.frozen_stages=2"], "frozen together"),
        (["model.network=smp:FPN/tu-test_resnet", "train.crop=48"], "multiples of 32"),
        (["model.network=smp:Unet/tu-test_resnet", "train.compile=true"], "leave it out"),
        (["model.network=smp:Unet/tu-test_resnet", "method.start=similar"], "leave method.start out"),
    ],
)
def test_one_sentence_before_training(words: list[str], sentence: str) -> None:
    for package in ("segmentation_models_pytorch", "transformers"):
        pytest.importorskip(package)
    with pytest.raises(UserError, match=sentence):
        build_method(recipe("mib", "model.pretrained=false", *words), CPU)


def test_a_folder_brings_its_weights(tmp_path: Path) -> None:
    name = tiny_folder(tmp_path, "smp")
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="brings its weights"):
        recipe("mib", f"model.network={name}", "model.weights=other.pth")


def test_code_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from foreign_networks import OwnUNet\n\ndef build():\n    return OwnUNet()\n"
    )
    config = recipe("mib", f"model.network={tmp_path / 'net.py'}:build", *SHORT)
    quiet_run(config, tmp_path / "run")
    assert load_run(tmp_path / "run", device="cpu").classes[0] == "background"


def test_estimates_before_a_run(tmp_path: Path) -> None:
    config = tiny(tmp_path, "smp", "model.pretrained=false")
    need = need_of(config)
    count = sum(parameter.nbytes for parameter in built(config)[1].parameters())
    assert need.fixed > 2 * count and need.flops > 0 and need.image > 0
    assert make_plan(config, 1, None, Display(quiet=True)).network == config.model.backbone


def test_a_frozen_encoder_stays_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("segmentation_models_pytorch")
    timm = pytest.importorskip("timm")
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "encoder.safetensors")
    config = recipe(
        "mib",
        "model.network=smp:Unet/tu-test_resnet",
        f"model.weights={tmp_path / 'encoder.safetensors'}",
        "model.frozen_stages=5",
        *SHORT[1:],
    )
    before = built(config)[1].body.state_dict()
    quiet_run(config, tmp_path / "run")
    after = weights(tmp_path / "run", 1)
    names = [name for name in before if name.startswith("encoder.")]
    assert names and all(torch.equal(before[name], after[f"model.body.{name}"]) for name in names)
    head = [name for name in before if name.startswith("decoder.") and before[name].is_floating_point()]
    assert any(not torch.equal(before[name], after[f"model.body.{name}"]) for name in head)


# Classifiers of methods


@pytest.mark.parametrize("name", ["star", "acil"])
def test_a_classifier_of_a_method_stands_in_the_network(tmp_path: Path, name: str) -> None:
    words = ("method.params.width=16",) if name == "acil" else ()
    config = tiny(tmp_path / "net", "hf", *SHORT, *words, method=name)
    quiet_run(config, tmp_path / "run")
    model = load_run(tmp_path / "run", device="cpu")
    spec = json.loads(json.dumps(model.network.spec()))
    again = network_from_spec(spec)
    again.load_state_dict(model.network.state_dict(), strict=True)
    images = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        ours, theirs = again.eval()(images).logits, model.network.eval()(images).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)  # their memory layout differs
    with pytest.raises(UserError, match="classifier of a method"):
        model.save_native(tmp_path / "native")


def test_step_0_is_shared_where_the_classifier_is(tmp_path: Path) -> None:
    names = ("finetune", "mib", "acil")
    own = [tiny(tmp_path, "hf", method=name) for name in names]
    plain = [recipe(name) for name in names]
    starts = [[_of_method(_kind(config), config).model for config in configs] for configs in (own, plain)]
    assert starts[1] == [{}, {}, {}]
    assert starts[0][:2] == [{}, {}] and starts[0][2]


def _kind(config: RunConfig) -> type[Method]:
    from segue.core import plugins

    return plugins.find("method", config.method.name)


def test_a_preset_gives_way_to_the_network() -> None:
    from segue.engine.recipe import resolve

    said: list[str] = []
    words = ["model.network=hf:segformer-b0", "model.weights=encoder.pth", "preset=laptop"]
    config = resolve("mib", "voc", "15-5", overrides=words, say=said.append)
    assert config.model.backbone == "hf:segformer-b0" and config.model.frozen_stages == 0
    assert "hf:segformer-b0" in said[0] and "mobilenetv2_100" not in said[0]
