"""Recipes are checked strictly, and survive the way to YAML and back."""

import dataclasses
from dataclasses import dataclass

import pytest
import yaml

from segue.core.config import (
    OptimConfig,
    RunConfig,
    TrainConfig,
    as_dict,
    read_back,
    recipe_hash,
    to_yaml,
    validate,
)
from segue.core.errors import UserError
from segue.core.overrides import differences, merge, parse_overrides
from segue.core.yaml_text import parse_yaml
from segue.methods.caf import CAF

SMALL = {"scenario": {"dataset": "voc", "split": "15-5"}, "method": {"name": "caf"}}
FULL = {
    "scenario": {
        "dataset": "zoo",
        "split": [["cat", 2], ["person"]],
        "mode": "disjoint",
        "void": "ignore",
        "future": "background",
        "order": [3, "cat", "dog"],
        "learned": 1,
        "learned_by": "abc",
        "teacher": "model.onnx",
        "keep": "old",
        "keep_share": 0.25,
        "keep_digest": "def",
        "manifest": "scenario.json",
        "hold_out": 0.25,
    },
    "method": {
        "name": "mib",
        "params": {"kd_weight": 1e-05, "layers": [1, {"é": None}], "text": "1e-2"},
        "fuse": 0.5,
        "start": "share",
        "start_epochs": 3,
    },
    "data": {"root": "images", "empty": {}},
    "model": {
        "backbone": "tiny",
        "head": "tiny",
        "output_stride": 8,
        "stages": 3,
        "weights": "w.safetensors",
        "pretrained": True,
        "frozen_stages": 2,
        "frozen_blocks": 1,
        "network": {"kind": "smp"},
        "settled": ({"kind": "caf", "config": {"fusion": False}},),
    },
    "optim": {
        "lr_first": 0.5,
        "lr_next": 1e-07,
        "momentum": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
        "poly_power": 1.0,
        "head_factor": 10.0,
        "new_factor": 20.0,
        "layer_factor": 2.0,
        "clip": None,
    },
    "train": {
        "epochs": 3,
        "epochs_next": 2,
        "batch_size": 4,
        "accumulate": 2,
        "crop": 64,
        "scale": (0.8, 1.0),
        "crop_on": "new",
        "crop_on_share": 0.25,
        "balance": "classes",
        "views": 3,
        "cache_frozen": True,
        "cache_gb": 0.5,
        "cache_disk_gb": 0.5,
        "norm": "batch",
        "precision": "bf16",
        "channels_last": False,
        "checkpointing": True,
        "compile": True,
        "workers": 0,
        "seed": 7,
        "log_every": 1,
        "save_seconds": 0.0,
        "patience": 1.0,
        "track": "tensorboard",
    },
    "eval": {"samples": 0, "thin": 3, "between": 2, "every": 2, "background": "closed", "size": "own"},
}


def recipe(**sections) -> RunConfig:
    return validate(RunConfig, merge(SMALL, sections), "")


# --- validation -----------------------------------------------------------------------------------


def test_defaults_fill_what_is_not_given():
    config = recipe()
    assert (config.scenario.mode, config.scenario.void) == ("overlapped", "background")
    assert config.optim == OptimConfig()
    assert config.method.params == config.data == {}


def test_no_given_value_is_dropped():
    config = validate(RunConfig, FULL, "")
    assert as_dict(config) == FULL
    for section, defaults in as_dict(recipe()).items():
        assert [key for key, value in defaults.items() if FULL[section][key] == value] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimizer": {}}, "Unknown key 'optimizer'. Did you mean 'optim'?"),
        ({"optim": {"lr_nxt": 1}}, "Unknown key 'optim.lr_nxt'. Did you mean 'optim.lr_next'?"),
        ({"train": {"batchsize": 4}}, "Unknown key 'train.batchsize'. Did you mean 'train.batch_size'?"),
        ({"method": {"parms": {}}}, "Unknown key 'method.parms'. Did you mean 'method.params'?"),
        (
            {"eval": {"zzz": 1}},
            "Unknown key 'eval.zzz'. Valid: eval.samples, eval.thin, eval.between, eval.every, eval.",
        ),
        ({1: 2}, "Unknown key '1'."),
    ],
)
def test_unknown_key_is_named_with_the_nearest(values, message):
    with pytest.raises(UserError) as caught:
        validate(RunConfig, merge(SMALL, values), "")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "section", [field.name for field in dataclasses.fields(RunConfig) if field.name != "data"]
)
def test_every_section_refuses_unknown_keys(section):
    with pytest.raises(UserError, match=rf"Unknown key '{section}\.surprise'"):
        recipe(**{section: {"surprise": 1}})


@dataclass(frozen=True)
class Inner:
    depth: int = 1


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    maybe: Inner | None = None
    many: tuple[Inner, ...] = ()


def test_config_of_a_plugin_is_checked_under_its_own_name():
    assert validate(Outer, {"inner": {"depth": "3"}, "many": [{}]}, "data") == Outer(
        Inner(3), None, (Inner(),)
    )
    with pytest.raises(UserError, match=r"\.inner\.dept'\. Did you mean 'method\.params\.inner\.depth'"):
        validate(Outer, {"inner": {"dept": 2}}, "method.params")


@pytest.mark.parametrize("values", [{"maybe": {"dept": 2}}, {"many": [{"dept": 2}]}])
def test_unknown_key_inside_an_optional_or_listed_section_is_refused(values):
    with pytest.raises(UserError, match=r"data\..*\.dept"):
        validate(Outer, values, "data")


@pytest.mark.parametrize(
    ("base", "over"),
    [
        ({"train": 5}, {"train": {"seed": 1}}),
        ({"train": [{"epochs": 1}]}, {"train": {"seed": 1}}),
        ({"train": {"seed": 1}}, {"train": 5}),
    ],
)
def test_a_value_does_not_take_the_place_of_a_section(base, over):
    """Nor is it forgotten when a section comes in its place."""
    with pytest.raises(UserError, match=r"'method\.train' (is a section|cannot be .* and a section at once)"):
        merge({"method": base}, {"method": over})


def test_an_empty_section_is_one():
    assert merge({"train": None}, {"train": {"seed": 1}}) == {"train": {"seed": 1}}


@pytest.mark.parametrize(
    "word",
    ["data.root=a #b", "data.root=#b", "train.epochs=3 # as published", 'data.root="a" #b', "data.x=[1] # b"],
)
def test_what_yaml_would_drop_as_a_comment_is_refused(word):
    with pytest.raises(UserError, match="Quote the value"):
        parse_overrides([word])


def test_a_sign_that_begins_no_comment_or_is_quoted_stays():
    found = parse_overrides(["data.root=a#b", 'data.skip="a #b"', "data.names=['# 1']"])
    assert found == {"data": {"root": "a#b", "skip": "a #b", "names": ["# 1"]}}


def test_a_value_that_is_nested_too_deeply_is_refused():
    with pytest.raises(UserError, match="not valid YAML"):
        parse_overrides(["data.root=" + "[" * 5000])


@pytest.mark.parametrize("value", [None, 3, "caf"])
def test_section_must_be_a_mapping(value):
    with pytest.raises(UserError, match="'optim' is a section"):
        recipe(optim=value)


@pytest.mark.parametrize(
    ("section", "key", "value", "complaint"),
    [
        ("optim", "lr_first", 0, "greater than 0"),
        ("optim", "lr_first", "fast", "valid number"),
        ("optim", "lr_first", float("nan"), "finite"),
        ("optim", "momentum", 1, "less than 1"),
        ("optim", "momentum", float("nan"), "less than 1"),
        ("optim", "clip", -1, "greater than 0"),
        ("optim", "clip", False, "greater than 0"),
        ("optim", "nesterov", "maybe", "boolean"),
        ("train", "epochs", 0, "greater than or equal to 1"),
        ("train", "epochs", 2.5, "integer"),
        ("train", "batch_size", 1, "greater than or equal to 2"),
        ("train", "norm", "frosen", "'frozen' or 'batch'"),
        ("model", "output_stride", 4, "8, 16 or 32"),
        ("model", "backbone", None, "string"),
        ("scenario", "mode", "overlap", "'overlapped', 'disjoint', 'sequential' or 'divided'"),
        ("scenario", "split", 50, "string"),  # the recipe builder turns numbers into text first
        ("scenario", "order", 7, "string"),
    ],
)
def test_bad_value_is_named(section, key, value, complaint):
    with pytest.raises(UserError) as caught:
        recipe(**{section: {key: value}})
    assert f"'{section}.{key}' is {value!r}: " in str(caught.value)
    assert complaint in str(caught.value)


def test_bad_entry_of_a_list_is_named_by_its_place():
    with pytest.raises(UserError, match=r"'scenario\.split\.0\.1' is 2\.5: .*integer"):
        recipe(scenario={"split": [["cat", 2.5]]})
    with pytest.raises(UserError, match=r"'train\.scale\.1' is -1: "):
        recipe(train={"scale": [1, -1]})


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        *(("train.epochs", True, ""), ("train.epochs_next", True, ""), ("optim.clip", True, "")),
        *(("optim.momentum", False, ""), ("train.scale", [True, 1], ".0"), ("eval.samples", False, "")),
        *(("scenario.order", ["cat", False], ".1"), ("scenario.split", [["cat"], ["dog", True]], ".1.1")),
    ],
)
def test_true_and_false_are_no_numbers(key: str, value: object, place: str):
    """They would be taken as 1 and 0."""
    section, _, name = key.partition(".")
    with pytest.raises(UserError, match=f"'{key}{place}' is (True|False): a number belongs here"):
        recipe(**{section: {name: value}})


def test_true_is_no_number_in_the_settings_of_a_method():
    with pytest.raises(UserError, match=r"'method\.params\.rehearsal\.per_class' is True: a number belongs"):
        validate(CAF.Config, {"rehearsal": {"per_class": True}}, "method.params")


def test_missing_keys_are_all_named():
    with pytest.raises(UserError) as caught:
        validate(RunConfig, {"scenario": {"dataset": "voc"}, "method": {}}, "")
    assert str(caught.value).splitlines() == ["'scenario.split' is missing.", "'method.name' is missing."]


def test_numbers_written_as_text_become_numbers():
    values = yaml.safe_load("{lr_first: 1e-2, lr_next: '0.5', weight_decay: 0}")
    assert values["lr_first"] == "1e-2"  # YAML 1.1 wants 1.0e-2
    optim = recipe(optim=values).optim
    assert (optim.lr_first, optim.lr_next, optim.weight_decay) == (0.01, 0.5, 0.0)
    assert all(type(rate) is float for rate in (optim.lr_first, optim.lr_next, optim.weight_decay))


def test_recipe_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe().train.epochs = 3


# --- overrides and merging ------------------------------------------------------------------------


def test_overrides():
    words = [
        "optim.lr_next=1e-3",
        "train.scale=[0.5, 1]",
        "train.epochs=3",
        "model.weights=null",
        "data.root=a=b",
    ]
    assert parse_overrides(words) == {
        "optim": {"lr_next": "1e-3"},
        "train": {"scale": [0.5, 1], "epochs": 3},
        "model": {"weights": None},
        "data": {"root": "a=b"},
    }
    assert parse_overrides([]) == {}


def test_last_override_wins():
    assert parse_overrides(["train.epochs=3", "train.epochs=4"]) == {"train": {"epochs": 4}}


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("15-5", "15-5"),
        ("50", "50"),
        ('"15-5"', "15-5"),
        ("cat,dog/person", "cat,dog/person"),
        ("[[cat, 2], [person]]", [["cat", 2], ["person"]]),
    ],
)
def test_split_stays_text_unless_it_is_a_list(text, split):
    assert parse_overrides([f"scenario.split={text}"]) == {"scenario": {"split": split}}


@pytest.mark.parametrize("word", ["epochs", "", "=3", "train.=3", ".epochs=3", "train..epochs=3"])
def test_word_that_is_no_setting_is_refused(word):
    with pytest.raises(UserError, match=r"settings are written section\.key=value"):
        parse_overrides([word])


@pytest.mark.parametrize("word", ["train.scale=[0.5", "data.root={a", "data.day=2020-13-45"])
def test_value_that_is_no_yaml_is_refused(word):
    with pytest.raises(UserError, match="not valid YAML"):
        parse_overrides([word])


def test_merge_goes_into_sections_and_leaves_its_arguments_alone():
    base = {"a": {"x": 1, "y": {"z": 1}}, "b": [1, 2], "c": 3}
    over = {"a": {"y": {"w": 2}}, "b": [3], "c": 4}
    assert merge(base, over) == {"a": {"x": 1, "y": {"z": 1, "w": 2}}, "b": [3], "c": 4}
    assert base == {"a": {"x": 1, "y": {"z": 1}}, "b": [1, 2], "c": 3}
    assert merge({"a": {"x": 1}}, {"a": None}) == {"a": None}


# --- YAML, hash, differences ----------------------------------------------------------------------


@pytest.mark.parametrize("values", [SMALL, FULL], ids=["small", "full"])
def test_yaml_round_trip(values):
    config = validate(RunConfig, values, "")
    text = to_yaml(config)
    again = validate(RunConfig, yaml.safe_load(text), "")
    assert again == config
    assert recipe_hash(again) == recipe_hash(config)
    sections = [line.split(":")[0] for line in text.splitlines() if not line.startswith((" ", "-"))]
    assert sections == [field.name for field in dataclasses.fields(RunConfig)]


def test_hash_sees_every_change():
    assert recipe_hash(recipe()) != recipe_hash(recipe(train={"seed": 43}))
    assert recipe_hash(recipe(method={"params": {"a": 1, "b": 2}})) == recipe_hash(
        recipe(method={"params": {"b": 2, "a": 1}})
    )


def test_keys_that_say_nothing_leave_older_hashes_alone():
    older = "sha256:d59b8f18ce5906ee2f31a2cc514ff6c44c0a751f5df804568000139632b28790"
    assert recipe_hash(recipe()) == older, "of a recipe from before those keys"
    assert recipe_hash(recipe(train={"crop_on_share": 0.25})) == older, "a share of nothing"
    placed = [recipe_hash(recipe(train={"crop_on": "new", "crop_on_share": share})) for share in (0.5, 1.0)]
    balanced = recipe_hash(recipe(train={"balance": "classes"}))
    assert recipe_hash(recipe(model={"pretrained": False})) == older, "random weights, said or not"
    assert len({older, balanced, *placed}) == 4


def test_differences():
    stored = as_dict(recipe(data={"root": "old"}))
    wanted = as_dict(recipe(train={"epochs": 3}, data={"size": 8}, scenario={"split": "15-1"}))
    assert differences(stored, wanted) == [
        "scenario.split: '15-5' -> '15-1'",
        "data.root: 'old' -> None",
        "data.size: None -> 8",
        "train.epochs: 30 -> 3",
    ]


def test_stored_recipe_does_not_differ_from_itself():
    config = validate(RunConfig, FULL, "")
    assert differences(yaml.safe_load(to_yaml(config)), as_dict(config)) == []  # tuple or list is the same


def test_a_recipe_reads_as_yaml_reads_what_was_stored():
    names = ["no", "1e3", "2020-01-01", " a: b ", "#", "\x85\u2028\ufeff", "\ud800", "\U0001f436", "a\tb\n"]
    rates = {"lr_first": 1e-20, "lr_next": 1e17}
    config = recipe(scenario={"split": [[name] for name in names]}, optim=rates)
    assert read_back(config) == yaml.safe_load(to_yaml(config)) == parse_yaml(to_yaml(config))
    assert [name for (name,) in read_back(config)["scenario"]["split"]] == names


def test_scale_runs_from_small_to_large() -> None:
    with pytest.raises(UserError, match="small to large"):
        validate(TrainConfig, {"scale": [2.0, 0.5]}, "train")
