"""Named variants of a method: one layer of the recipe, above the data set's setting and below every word."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from segue.core import plugins
from segue.core.config import recipe_hash, to_yaml
from segue.core.errors import UserError
from segue.engine.recipe import resolve, stored_recipe
from segue.methods.caf.config import AdConfig, Config
from segue.models.caf import LayerConfig

VARIANTS = ("segue", "paper", "official", "official_head")


def params(*words: str, dataset: str = "scenes", split: str = "5-2", file: Path | None = None) -> dict:
    method = None if file else "caf"
    return dataclasses.asdict(resolve(method, dataset, split, overrides=words, file=file).method.params)


def fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def leaves(values: dict[str, Any], where: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= leaves(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return found


def test_layers_of_a_variant_in_order(tmp_path):
    """defaults < the data set's setting < variant < recipe file < words"""
    kind = plugins.find("method", "caf")
    (setting,) = [each for each in kind.benchmark_values if each.dataset == "scenes"]
    of_setting, paper = setting.values["method"]["params"]["ad_weight"], kind.variants["paper"]["ad_weight"]
    assert len({Config().ad_weight, of_setting, paper}) == 3, "else nothing is seen below"
    assert params(dataset="voc", split="15-5")["ad_weight"] == Config().ad_weight
    assert params()["ad_weight"] == of_setting, "the setting of the data set"
    assert params("method.params.variant=paper")["ad_weight"] == paper, "the variant over the setting"
    file = tmp_path / "my.yaml"
    file.write_text("method: {name: caf, params: {variant: paper, ad_weight: 5, layer: {pool: after}}}\n")
    found = params(file=file)
    assert found["ad_weight"] == 5.0 and found["layer"]["pool"] == "after", "the file over the variant"
    assert found["balanced"] is True and found["layer"]["output"] == "none", "the variant where it is silent"
    found = params("method.params.ad_weight=7", "method.params.layer.output=conv", file=file)
    assert found["ad_weight"] == 7.0 and found["layer"]["output"] == "conv", "words over the file"
    assert found["layer"]["pool"] == "after" and found["ad"]["form"] == "printed"
    file.write_text("method: {name: caf, params: {variant: paper}}\n")
    assert params("method.params.variant=official", file=file)["gamma"] == "logit", "also for the variant"


def test_order_of_words_does_not_matter_to_the_variant():
    words = ["method.params.kd_weight=3", "method.params.variant=official", "method.params.ad.norm=mean"]
    assert params(*words) == params(*words[::-1])
    assert params(*words)["kd_weight"] == 3.0 and params(*words)["ad"]["norm"] == "mean"


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_holds_every_value_that_it_names(name):
    caf = plugins.find("method", "caf")
    assert tuple(caf.variants) == VARIANTS
    found, named = leaves(params(f"method.params.variant={name}")), leaves(caf.variants[name])
    assert {key: found[key] for key in named} == named
    plain = leaves(params())
    changed = {key for key in found if found[key] != plain[key]} - {"variant"}
    assert changed <= set(named), "and changes nothing else"
    assert bool(changed) is (name != "segue")


def test_variants_differ_from_each_other():
    found = [params(f"method.params.variant={name}") for name in VARIANTS]
    for index, one in enumerate(found):
        for other in found[:index]:
            assert {**one, "variant": ""} != {**other, "variant": ""}


@pytest.mark.parametrize("value", ["papr", "[paper]", "null", "3"])
def test_unknown_variant_is_refused_and_the_known_ones_named(value):
    with pytest.raises(UserError) as error:
        params(f"method.params.variant={value}")
    message = str(error.value)
    assert message.startswith("'method.params.variant' is ")
    assert all(f"'{name}'" in message for name in VARIANTS)


def test_variant_of_a_method_without_variants_is_an_unknown_key():
    with pytest.raises(UserError, match=r"Unknown key 'method\.params\.variant'"):
        resolve("mib", "scenes", "5-2", overrides=["method.params.variant=paper"])


@pytest.mark.parametrize("name", VARIANTS)
def test_stored_recipe_says_every_choice_and_begins_with_the_variant(name, tmp_path):
    config = resolve("caf", "scenes", "5-2", overrides=[f"method.params.variant={name}"])
    (tmp_path / "recipe.yaml").write_text(to_yaml(config))
    stored = yaml.safe_load((tmp_path / "recipe.yaml").read_text())["method"]["params"]
    assert list(stored) == fields(Config) and next(iter(stored)) == "variant"
    assert list(stored["ad"]) == fields(AdConfig) and list(stored["layer"]) == fields(LayerConfig)
    assert stored["variant"] == name
    again = stored_recipe(tmp_path)
    assert again == config and recipe_hash(again) == recipe_hash(config)


@pytest.mark.parametrize("word", ["method.params.variant=paper", "method={params: {variant: paper}}"])
def test_variant_of_a_stored_recipe_cannot_be_changed(word, tmp_path):
    """Its values would stay, and the name would be wrong."""
    path = tmp_path / "recipe.yaml"
    path.write_text(to_yaml(resolve("caf", "scenes", "5-2")))
    message = "every choice of its variant 'segue'. For 'paper' begin with the method's name"
    with pytest.raises(UserError, match=message):
        stored_recipe(tmp_path, ["train.seed=1", word])
    with pytest.raises(UserError, match=message):
        resolve(file=path, overrides=[word])
    same = stored_recipe(tmp_path, ["method.params.variant=segue", "method.params.kd_weight=3"])
    assert same.method.params.variant == "segue" and same.method.params.kd_weight == 3.0
