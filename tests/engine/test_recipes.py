"""Recipes: the order of the layers, and every shipped file loads, resolves and builds."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml

from segue.core import plugins
from segue.core.config import RunConfig, TrainConfig, recipe_hash, to_yaml
from segue.core.errors import UserError
from segue.core.manifest import manifest
from segue.core.records import write_json
from segue.core.scenario import make_scenario
from segue.data.datasets.scenes import Config as ScenesConfig
from segue.engine.recipe import recipe_folder, resolve
from segue.methods.base import Method
from segue.models.segmenter import Segmenter

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))

METHOD = """
from dataclasses import dataclass
from segue.methods.base import About, BenchmarkValues, Method

@dataclass(frozen=True)
class Config:
    weight: float = 1.0
    other: float = 1.0

class Mine(Method):
    Config = Config
    about = About("mine", "a test", 2020)
    benchmark_values = (
        BenchmarkValues("scenes", "5-2", {"method": {"params": {"weight": 3.0}}, "optim": {"lr_next": 0.3}}),
        BenchmarkValues("scenes", None, {"method": {"params": {"weight": 2.0, "other": 2.0}}}),
        BenchmarkValues("scenes", None, {"train": {"epochs": 99}}),
        BenchmarkValues("voc", None, {"method": {"params": {"weight": 7.0}}}),
    )

    def losses(self, batch):
        return {}

METHOD = Mine
"""


def from_header(path: Path) -> RunConfig:
    """The recipe of the command in the first line; of a comparison that of one method."""
    command = path.read_text(encoding="utf-8").splitlines()[0]
    match = re.fullmatch(r"# segue (train|compare) (\S+\.yaml)((?: --\w+ \S+)*)((?: \S+=\S+)*)", command)
    assert match and match[2] == path.name, command
    options = dict(zip(*[iter(match[3].split())] * 2, strict=True))
    method = "mib" if match[1] == "compare" else None
    assert options.keys() <= {"--on", "--split"} and (method or not options)
    return resolve(method, options.get("--on"), options.get("--split"), None, match[4].split(), path)


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(METHOD)
    return str(tmp_path / "mine.py")


def test_there_are_recipes():
    assert len(RECIPES) >= 1
    assert recipe_folder() == RECIPES[0].parent


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_resolves_and_builds(path):
    config = from_header(path)
    config = replace(config, model=replace(config.model, weights=None, pretrained=False))  # not at hand
    method: type[Method] = plugins.find("method", config.method.name)
    with torch.device("meta"):
        model = Segmenter(config.model)
        built = method(config.method.params, model)
    assert sum(parameter.numel() for parameter in built.parameters()) > 10_000


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_is_a_scenario_of_its_data_set(path):
    config = from_header(path)
    kind = plugins.find("dataset", config.scenario.dataset)
    classes = getattr(kind, "classes", None) or kind(config.data, "train").classes
    assert len(make_scenario(classes, config.scenario.split, order=config.scenario.order)) >= 2


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_header_of_a_shipped_recipe_is_its_command(path):
    from_header(path)
    header = [line for line in path.read_text(encoding="utf-8").splitlines()[1:] if line.startswith("#")]
    assert any("Paper" in line and "Ours" in line for line in header), "the paper's number and ours"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_says_only_what_it_must(path):
    """A recipe is readable: a few lines, not a dump of every default."""
    text = path.read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    several = found.keys() & {"methods", "tune"}  # a section for each method, of a few lines
    assert len(text.splitlines()) <= (60 if several else 15)
    assert found.keys() - several - {"preset"} <= {
        "scenario",
        "model",
        "method",
        "optim",
        "train",
        "data",
        "eval",
    }


def kd_weight(split: str | None, *words: str, dataset: str = "voc") -> float:
    return resolve("mib", dataset, split, overrides=words).method.params.kd_weight


def test_values_of_the_paper_for_a_setting():
    assert kd_weight("15-5") == 10.0
    assert kd_weight("15-1") == 100.0
    assert kd_weight("15-5s") == 100.0, "the alias of 15-1"
    assert kd_weight("19-1") == 10.0
    assert kd_weight("5-2", dataset="scenes") == 10.0


def test_explicit_value_wins_over_the_paper():
    assert kd_weight("15-1", "method.params.kd_weight=5") == 5.0
    assert kd_weight("15-5s", "method.params.kd_weight=0") == 0.0


def test_split_given_as_a_setting_finds_the_paper_too():
    assert kd_weight(None, "scenario.split=15-1") == 100.0


def test_layers_in_order(mine, tmp_path):
    """defaults < protocol of the data set < the method's values < recipe file < words"""
    plain = resolve("finetune", "scenes", "5-2")
    assert plain.train.log_every == TrainConfig().log_every, "default"
    protocol = plugins.find("dataset", "scenes").protocol
    wanted = (protocol["train"]["epochs"], protocol["optim"]["lr_next"])
    assert (plain.train.epochs, plain.optim.lr_next) == wanted, "protocol"
    config = resolve(mine, "scenes", "5-2")
    assert (config.train.epochs, config.optim.lr_next) == (99, 0.3), "method over protocol"
    assert config.train.batch_size == protocol["train"]["batch_size"], "the protocol where it says nothing"
    assert asdict(config.method.params) == {"weight": 3.0, "other": 2.0}, "the more special setting wins"
    assert asdict(resolve(mine, "scenes", "3-3").method.params) == {"weight": 2.0, "other": 2.0}
    assert asdict(resolve(mine, "voc", "15-5").method.params) == {"weight": 7.0, "other": 1.0}
    path = tmp_path / "my.yaml"
    path.write_text(
        f"scenario: {{dataset: scenes, split: 5-2}}\nmethod: {{name: {mine}, params: {{weight: 4}}}}\n"
        "train: {epochs: 7, seed: 1}\n"
    )
    config = resolve(file=path)
    assert (config.train.epochs, config.train.seed, config.optim.lr_next) == (7, 1, 0.3), "file over method"
    assert asdict(config.method.params) == {"weight": 4.0, "other": 2.0}
    config = resolve(file=path, overrides=["train.epochs=8", "method.params.weight=5"])
    assert (config.train.epochs, config.train.seed) == (8, 1), "words over file"
    assert config.method.params.weight == 5.0
    assert resolve(file=path, split="3-3").scenario.split == "3-3"


def test_protocol_of_a_data_set_is_left_as_it_was():
    before = resolve("mib", "scenes", "5-2")
    resolve("mib", "scenes", "5-2", overrides=["train.epochs=1", "model.head=lite", "optim.lr_first=9"])
    assert resolve("mib", "scenes", "5-2") == before


@pytest.mark.parametrize(
    "words", [["mib", "voc", "15-1"], ["caf", "scenes", "5-2"], ["joint", "scenes", "5-2"]]
)
def test_shown_recipe_reads_back_as_the_same(words, tmp_path):
    config = resolve(*words, overrides=["train.seed=3", "optim.weight_decay=1e-5", "optim.clip=null"])
    (tmp_path / "shown.yaml").write_text(to_yaml(config))
    again = resolve(file=tmp_path / "shown.yaml")
    assert again == config and recipe_hash(again) == recipe_hash(config)
    assert config.optim.weight_decay == 1e-5 and config.optim.clip is None


@pytest.mark.parametrize("split", ["50", "'50'", "50-50"])
def test_split_of_one_number_in_a_file(split, tmp_path):
    (tmp_path / "my.yaml").write_text(f"scenario: {{dataset: voc, split: {split}}}\nmethod: {{name: mib}}\n")
    assert resolve(file=tmp_path / "my.yaml").scenario.split == split.strip("'")


def test_listed_split_in_a_file(tmp_path):
    text = "scenario: {dataset: voc, split: [[cat, 12], [person]]}\nmethod: {name: mib}\n"
    (tmp_path / "my.yaml").write_text(text)
    config = resolve(file=tmp_path / "my.yaml")
    assert config.scenario.split == [["cat", 12], ["person"]]
    (tmp_path / "again.yaml").write_text(to_yaml(config))
    assert resolve(file=tmp_path / "again.yaml") == config


def test_number_that_yaml_takes_for_text(tmp_path):
    """PyYAML reads 1e-3 as a string; the field's type makes it a number."""
    scenario, method = (
        "scenario: {dataset: scenes, split: 5-2}",
        "method: {name: mib, params: {kd_weight: 1e1}}",
    )
    (tmp_path / "my.yaml").write_text(f"{scenario}\n{method}\noptim: {{lr_first: 1e-3}}\n")
    config: RunConfig = resolve(file=tmp_path / "my.yaml")
    assert config.optim.lr_first == 0.001 and config.method.params.kd_weight == 10.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["method.params.kd_wieght=1"],
            "Unknown key 'method.params.kd_wieght'. Did you mean 'method.params.kd_weight'?",
        ),
        (["method.params.kd_weight=-1"], "'method.params.kd_weight' is -1"),
        (["method.params.kd_weight=heavy"], "'method.params.kd_weight' is 'heavy'"),
        (["method.parms.kd_weight=1"], "Unknown key 'method.parms'. Did you mean 'method.params'?"),
        (["data.root=x"], "Unknown key 'data.root'."),
        (["optim.momentum=1"], "'optim.momentum' is 1"),
    ],
)
def test_wrong_setting_is_named(words, message):
    with pytest.raises(UserError) as error:
        resolve("mib", "scenes", "5-2", overrides=words)
    assert message in str(error.value)


def test_method_without_settings_takes_none():
    with pytest.raises(UserError, match=r"Unknown key 'method\.params\.kd_weight'"):
        resolve("finetune", "scenes", "5-2", overrides=["method.params.kd_weight=1"])


def test_section_left_empty_in_a_file_is_named(tmp_path):
    (tmp_path / "my.yaml").write_text(
        "scenario: {dataset: scenes, split: 5-2}\nmethod: {name: mib}\noptim:\n"
    )
    with pytest.raises(UserError, match="'optim' is a section"):
        resolve(file=tmp_path / "my.yaml")


def test_a_manifest_says_split_and_policy(tmp_path: Path) -> None:
    classes = plugins.find("dataset", "scenes")(ScenesConfig(classes=3), "train").classes
    scenario = make_scenario(classes, "2-1", mode="disjoint", void="ignore")
    write_json(tmp_path / "m.json", manifest(scenario, [["train-00000"], ["train-00001"]]))
    config = resolve("mib", overrides=["data.classes=3", f"scenario.manifest={tmp_path / 'm.json'}"])
    assert (config.scenario.dataset, config.scenario.mode, config.scenario.void) == (
        "scenes",
        "disjoint",
        "ignore",
    )
    assert config.scenario.split == [["barred disc", "barred square"], ["barred triangle"]]


# A section for each method


def with_sections(path: Path, text: str) -> Path:
    path.write_text("scenario: {dataset: scenes, split: 5-2}\n" + text)
    return path


def test_section_of_a_method_stands_between_the_file_and_the_words(tmp_path: Path) -> None:
    text = (
        "optim: {lr_next: 0.3, lr_first: 0.4}\n"
        "methods:\n"
        "  mib: {method.params.kd_weight: 30, optim.lr_next: 0.5}\n"
        "  caf: {method: {params: {kd_weight: 7}}, train.epochs: 2}\n"
        "tune: {anything: [1, 2]}\n"
    )
    path = with_sections(tmp_path / "my.yaml", text)
    mib = resolve("mib", file=path)
    assert mib.method.params.kd_weight == 30.0 and (mib.optim.lr_next, mib.optim.lr_first) == (0.5, 0.4)
    caf = resolve("caf", file=path)
    assert caf.method.params.kd_weight == 7.0 and (caf.train.epochs, caf.optim.lr_next) == (2, 0.3)
    own = resolve("caf", "scenes", "5-2").method.params.ad_weight
    assert caf.method.params.ad_weight == own, "the rest is the method's own for this data set"
    plain = resolve("finetune", file=path)
    assert plain.optim.lr_next == 0.3
    assert plain.train.epochs == plugins.find("dataset", "scenes").protocol["train"]["epochs"]
    words = ["method.params.kd_weight=5", "optim.lr_next=0.9"]
    said = resolve("mib", file=path, overrides=words)
    assert said.method.params.kd_weight == 5.0 and said.optim.lr_next == 0.9
    assert resolve(file=path, overrides=["method.name=mib"]) == mib, "wherever the method is named"
    with_sections(path, "method: {name: mib}\n" + text)
    assert resolve(file=path) == mib and resolve("caf", file=path) == caf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: {mob: {optim.lr_next: 1}}", "there is no method 'mob'. Did you mean 'mib'?"),
        ("methods: {3: {optim.lr_next: 1}}", "there is no method '3'."),
        ("methods: [mib]", "'methods' should hold a section for each method"),
        ("methods: {mib: 3}", "'methods' should hold a section for each method"),
        ("methods: {mib: {method.params.kd_wieght: 1}}", "Unknown key 'method.params.kd_wieght'."),
        ("methods: {mib: {method.params: 3}}", "'params' is a section"),
        ("method: {name: [mib]}\nmethods: {mib: {optim.lr_next: 1}}", "There is no method '['mib']'"),
    ],
)
def test_wrong_section_of_a_method_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = with_sections(tmp_path / "my.yaml", text + "\n")
    with pytest.raises(UserError) as error:
        resolve(None if "name" in text else "mib", file=path)
    assert message in str(error.value)
