"""A recipe from three words: method, data set, split.

Later layers win: defaults, the data set's training protocol, the method's values for this benchmark, a preset
for the machine (preset.py), the method's variant, the recipe file, what that says of this method alone,
`key=value` words. The result is complete, so a run folder explains itself. Nothing here needs torch: typing
mistakes are found at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

import segue
from segue.core import plugins
from segue.core.config import RunConfig, as_dict, validate
from segue.core.declaration import BenchmarkValues, Declaration
from segue.core.errors import UserError, suggest
from segue.core.manifest import read_manifest
from segue.core.networks import named_network
from segue.core.overrides import merge, nest, parse_overrides
from segue.core.records import read_yaml
from segue.core.splits import canonical_split
from segue.data.datasets.base import SegDataset
from segue.engine.preset import KEY, PresetRequest, names_network

OF_BACKBONES = ("backbone", "head", "output_stride", "stages")
"""settings that a network of another library has no use for"""
OF_ROW = "method.name"
"""key by which a section of `methods` is a row of its own: another form of the method that it names"""


def resolve(
    method: str | None = None,
    dataset: str | None = None,
    split: str | None = None,
    mode: str | None = None,
    overrides: Sequence[str] = (),
    file: str | Path | None = None,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> RunConfig:
    """The complete, checked recipe of a run.

    Where neither file nor data set names a network, a preset for the device does, or the one that the word
    `preset=NAME` names; `say` hears which.

    Examples:
        >>> import segue
        >>> recipe = segue.resolve("mib", "scenes", "5-2", overrides=["train.epochs=3", "train.seed=1"])
        >>> recipe.scenario.mode, recipe.train.epochs, recipe.model.backbone
        ('overlapped', 3, 'tiny')
    """
    words: dict[str, Any] = {
        "method": {"name": method},
        "scenario": {"dataset": dataset, "split": split, "mode": mode},
    }
    given, changes = _given(words), parse_overrides(overrides)
    name = _section(merge(given, changes), "method").get("name")
    stored = for_method(name, file) if file is not None else {}
    if file is not None and method in (rows := named_rows(file)):
        given = merge(given, {"method": {"name": rows[method]}})
    return complete(*with_preset(_changed(merge(stored, given), changes), stored, device, say))


def with_preset(
    asked: Mapping[str, Any],
    stored: Mapping[str, Any],
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> tuple[dict[str, Any], PresetRequest]:
    """What was asked for, and apart from it what was said of presets; `stored` is the recipe file."""
    values = {key: value for key, value in asked.items() if key != KEY}
    return values, PresetRequest(asked.get(KEY), device, names_network(stored), say or (lambda _: None))


def stored_recipe(folder: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The recipe of a run folder, with changes such as a new data.root."""
    path = Path(folder) / "recipe.yaml"
    if not path.is_file():
        raise UserError(f"{folder} is not a run folder: it has no recipe.yaml.")
    return complete(_changed(read_yaml(path), parse_overrides(overrides)))


def for_method(name: str | None, file: str | Path) -> dict[str, Any]:
    """A recipe file as it reads for one method; the file itself may name it."""
    stored = read_yaml(file)
    stored.pop("tune", None)  # for `segue tune` alone
    methods = stored.pop("methods", None)
    return merge(stored, _own_values(methods, name or _section(stored, "method").get("name"), file))


def named_rows(file: str | Path) -> dict[str, str]:
    """Rows that a recipe's section `methods` names beside the methods themselves, and the method of each:
    {caf-official: {method.name: caf, method.params.variant: official}}."""
    methods = read_yaml(file).get("methods")
    _own_values(methods, None, file)  # a wrong section is said here
    return {str(name): values[OF_ROW] for name, values in (methods or {}).items() if OF_ROW in values}


def _own_values(methods: Any, name: str | None, file: str | Path | None) -> dict[str, Any]:
    """What the section `methods` of a recipe file says of one method: {method: {dotted key: value}}."""
    if methods is None:
        return {}
    if not isinstance(methods, Mapping) or not all(isinstance(each, Mapping) for each in methods.values()):
        raise UserError(f"{file}: 'methods' should hold a section for each method: {{mib: {{key: value}}}}.")
    known = plugins.names("method")
    for each, own in methods.items():
        if each in known and OF_ROW in own:
            raise UserError(f"{file}: '{each}' is a method: give the row another name, or drop {OF_ROW}.")
        if (wanted := own.get(OF_ROW, each)) not in known:
            raise UserError(f"{file}: there is no method '{wanted}'.{suggest(str(wanted), known)}")
    values: dict[str, Any] = {}
    for key, value in methods.get(str(name), {}).items():
        values = merge(values, nest(str(key), value))
    return values


def _changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes. A variant is not changed under its own values: they would stay."""
    before, after = (_section(_section(each, "method"), "params") for each in (values, changes))
    old, new = before.get("variant"), after.get("variant")
    if old and new and old != new and len(before) > 1:
        raise UserError(
            f"The recipe says every choice of its variant '{old}'. For '{new}' begin with the method's name,"
            " or with a recipe that names the variant alone."
        )
    return merge(values, changes)


def complete(asked: Mapping[str, Any], preset: PresetRequest | None = None) -> RunConfig:
    """Fill in what was not asked for, and check everything. A stored recipe has no preset: it says all."""
    scenario, method = (_section(asked, name) for name in ("scenario", "method"))
    if scenario.get("manifest"):
        asked = merge(_from_manifest(str(scenario["manifest"])), asked)
        scenario = _section(asked, "scenario")
    if isinstance(scenario.get("split"), int):
        asked = merge(asked, {"scenario": {"split": str(scenario["split"])}})
    if not scenario.get("dataset"):
        raise UserError(f"Which data set? Add --on NAME ({', '.join(plugins.names('dataset'))}).")
    if not method.get("name"):
        raise UserError(
            f"Which method? Name one of: {', '.join(plugins.names('method'))}; with a recipe that leaves it"
            " open add method.name=caf."
        )
    data_kind: type[SegDataset] = plugins.find("dataset", str(scenario["dataset"]))
    asked = _named_order(data_kind, asked)
    declared = plugins.declared(str(method["name"]))
    if str(method["name"]).endswith(".py"):
        check_method_class(declared, str(method["name"]))
    layers = merge(data_kind.protocol, _benchmark_values(declared, asked))
    if preset is not None:
        layers = preset.lay(data_kind, layers, asked)
    whole = _with_weights(_with_network(merge(merge(layers, _variant_values(declared, asked)), asked)))
    if not _section(whole, "scenario").get("split"):
        raise UserError("Which split? Add --split B-I, such as 15-5: 15 classes first, then 5 at a time.")
    data: Any = validate(data_kind.Config, _section(whole, "data"), "data")
    params: Any = validate(declared.Config, _section(_section(whole, "method"), "params"), "method.params")
    filled = {**whole, "data": data, "method": {**_section(whole, "method"), "params": params}}
    config = validate(RunConfig, filled, "")
    _check_storable(config)
    if reason := data_kind.no_modes.get(config.scenario.mode):
        raise UserError(f"{config.scenario.dataset} has no mode '{config.scenario.mode}': {reason}")
    return config


def _with_network(whole: dict[str, Any]) -> dict[str, Any]:
    """A network of another library that is named by a text, described; backbone and head make room for it."""
    model = _section(whole, "model")
    if not isinstance(model.get("network"), str):
        return whole
    named = named_network(model["network"])
    if named.weights is not None and model.get("weights"):
        raise UserError(
            f"model.network={model['network']} brings its weights: drop model.weights={model['weights']}."
        )
    said = {key: value for key, value in model.items() if key not in OF_BACKBONES}
    if named.complete:
        said["pretrained"] = False
    weights = named.weights or said.get("weights")
    return {
        **whole,
        "model": {**said, "backbone": named.name, "network": named.described, "weights": weights},
    }


def _with_weights(whole: dict[str, Any]) -> dict[str, Any]:
    """`model.pretrained` stays open only where it has to be said: for a backbone without such a file."""
    model = _section(whole, "model")
    decided = model.get("weights") or model.get("backbone") == "tiny"
    if model.get("pretrained") is None and decided:
        return merge(whole, {"model": {"pretrained": False}})
    return whole


def _check_storable(config: RunConfig) -> None:
    """The settings of a plug-in may have types that a recipe cannot hold."""
    try:
        json.dumps(as_dict(config))
    except TypeError as error:
        names = f"{config.method.name} on {config.scenario.dataset}"
        raise UserError(f"{names}: a setting cannot be stored in a recipe: {error}.") from error


def recipe_folder() -> Path:
    """The shipped recipes: inside an installed package, or beside it in a checkout."""
    inside = Path(segue.__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(segue.__file__).parents[2] / "recipes"


def find_recipe(name: str) -> Path:
    """A file, or a shipped recipe of that name."""
    shipped = recipe_folder() / name
    is_shipped = Path(name).name == name and not Path(name).is_file() and shipped.is_file()
    return shipped if is_shipped else Path(name)


def check_method_class(method: Any, name: str) -> None:
    """A method of one's own is a finished class with its settings."""
    from segue.methods.base import Method  # torch, which the file has imported already

    if not (isinstance(method, type) and issubclass(method, Method)):
        raise UserError(f"{name}: METHOD is not a subclass of segue.methods.base.Method.")
    if missing := sorted(getattr(method, "__abstractmethods__", ())):
        raise UserError(f"{name}: the class {method.__name__} lacks {', '.join(missing)}.")
    if not dataclasses.is_dataclass(getattr(method, "Config", None)):
        raise UserError(f"{name}: the class {method.__name__} lacks Config, a dataclass of its settings.")
    if not isinstance(getattr(getattr(method, "about", None), "year", None), int):
        raise UserError(f"{name}: the class {method.__name__} lacks about = About(title, paper, year).")
    try:
        get_type_hints(method.Config), TypeAdapter(method.Config)
        inspect.signature(method).bind("config", "model")
    except (NameError, TypeError, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{name}: {method.__name__}(config, model) cannot be made: {reason}") from error
    values, variants = method.benchmark_values, method.variants
    if not (isinstance(values, tuple | list) and all(isinstance(each, BenchmarkValues) for each in values)):
        raise UserError(f"{name}: benchmark_values of {method.__name__} is no list of BenchmarkValues.")
    if not (isinstance(variants, Mapping) and all(isinstance(each, Mapping) for each in variants.values())):
        raise UserError(f"{name}: variants of {method.__name__} is no mapping of names to settings.")


def _named_order(data_kind: type[SegDataset], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The split "100-50b" is 100-50 in the order that the data set calls b."""
    scenario = _section(asked, "scenario")
    match = re.fullmatch(r"\s*([\dx-]+)([a-z]+)\s*", str(scenario.get("split")))
    if not match or match[2] not in data_kind.orders:
        return asked
    split, order = match.groups()
    if scenario.get("order") not in (None, order):
        raise UserError(f"The split '{split}{order}' has its order already: drop scenario.order.")
    return merge(asked, {"scenario": {"split": split, "order": order}})


def _benchmark_values(method: type[Declaration], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The method's values for this data set and split, the more special ones last."""
    scenario = asked["scenario"]
    split = canonical_split(str(scenario.get("split")))
    fitting = [
        each
        for each in method.benchmark_values
        if each.dataset == scenario["dataset"] and each.split in (None, split)
    ]
    values: dict[str, Any] = {}
    for each in sorted(fitting, key=lambda x: x.split is not None):
        values = merge(values, each.values)
    return values


def _variant_values(method: type[Declaration], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the variant that was asked for; Config checks its name."""
    chosen = _section(_section(asked, "method"), "params").get("variant")
    values = method.variants.get(chosen) if isinstance(chosen, str) else None
    return {"method": {"params": values or {}}}


def _from_manifest(path: str) -> dict[str, Any]:
    """What a manifest says of the scenario; the run checks that the recipe agrees with it."""
    document = read_manifest(path)
    return {"scenario": {"dataset": document["dataset"], "split": document["groups"], **document["policy"]}}


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise UserError(f"'{name}' is a section: write '{name}: {{key: value}}'.")
    return section


def _given(words: Mapping[str, Any]) -> dict[str, Any]:
    """The words that were said."""
    said = {key: {k: v for k, v in section.items() if v is not None} for key, section in words.items()}
    return {key: section for key, section in said.items() if section}
