"""Manifests: what is written reads back, and whatever else a file may hold is refused by name."""

import copy
import json
import re

import pytest

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.core.manifest import from_manifest, manifest, manifest_hash, read_manifest, write_manifest
from segue.core.scenario import Scenario, make_scenario

ZOO = ClassTable("zoo", {1: "cat", 2: "dog", 3: "person", 4: "horse", 5: "sheep", 6: "cow"})
KEYS = (("im0", "im10"), ("im1", "im3", "im4", "im5"), ("im7",))


@pytest.fixture
def scenario() -> Scenario:
    return make_scenario(ZOO, "3-2", "disjoint", void="ignore", future="background", order=[2, 3, 4, 6, 5, 1])


@pytest.mark.parametrize("mode", ["disjoint", "divided"])
def test_file_gives_the_scenario_back(tmp_path, mode):
    scenario = make_scenario(ZOO, "3-2", mode, order=[2, 3, 4, 6, 5, 1])
    write_manifest(tmp_path / "new" / "scenario.json", manifest(scenario, KEYS))
    assert from_manifest(read_manifest(tmp_path / "new" / "scenario.json"), ZOO) == (scenario, KEYS)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["scenario.json"]


def test_offline_manifest_gives_the_scenario_back():
    scenario = make_scenario(ZOO, "3-2", offline=True)
    document = json.loads(json.dumps(manifest(scenario, [["a", "b"]])))
    assert from_manifest(document, ZOO) == (scenario, (("a", "b"),))


def test_manifest_is_readable(scenario):
    document = manifest(scenario, KEYS)
    assert document["policy"] == {"mode": "disjoint", "void": "ignore", "future": "background"}
    assert document["groups"] == [["dog", "person", "horse"], ["cow", "sheep"], ["cat"]]
    assert document["steps"][2] == {"step": 2, "new": ["cat"], "images": 1, "train": ["im7"]}


def test_manifest_needs_the_keys_of_every_step(scenario):
    with pytest.raises(ValueError):
        manifest(scenario, KEYS[:2])


def test_broken_document_is_not_written(tmp_path, scenario):
    with pytest.raises(UserError, match=r"new\.json: the hash does not match"):
        write_manifest(tmp_path / "new.json", manifest(scenario, KEYS) | {"dataset": "voc"})
    assert list(tmp_path.glob("*.json")) == []


def test_edited_manifest_is_refused(scenario):
    document = manifest(scenario, KEYS)
    document["steps"][1]["train"].append("im11")
    with pytest.raises(UserError, match="hash does not match"):
        from_manifest(document, ZOO)


def test_manifest_of_another_data_set_is_refused(scenario):
    other = ClassTable("voc", {1: "cat"})
    with pytest.raises(UserError, match=r"m\.json is for data set 'zoo'.*asks for 'voc'"):
        from_manifest(manifest(scenario, KEYS), other, "m.json")


def test_class_that_the_data_set_lacks(scenario):
    other = ClassTable("zoo", {1: "cat", 2: "dog"})
    with pytest.raises(UserError, match=r"m\.json: 'person' is no class of zoo"):
        from_manifest(manifest(scenario, KEYS), other, "m.json")


# --- files that are none --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b"[]", "is not a scenario manifest"),
        (b"null", "is not a scenario manifest"),
        (b"{}", "is not a scenario manifest"),
        (b'{"format": ["segue-scenario-1"]}', "is not a scenario manifest"),
        (b'{"format": "segue-record-1"}', "is not a scenario manifest"),
        (b'{"format": "segue-scenario-1"}', "lacks 'dataset'"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b"[" + b"1" * 10_000 + b"]", "is not JSON"),
        (b'{"format": "\\ud800"}', "is not JSON"),
    ],
)
def test_file_that_is_no_manifest_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"broken\.json {message}"):
        read_manifest(path)


def test_missing_manifest_is_refused_by_name(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(UserError, match=rf"Cannot read the manifest {re.escape(str(path))}"):
            read_manifest(path)


# --- documents with something wrong ---------------------------------------------------------------

DEEP: list = []
for _ in range(100_000):
    DEEP = [DEEP]

WRONG = [
    (("dataset",), 3, "'dataset' is no name"),
    (("offline",), 0, "'offline' is neither true nor false"),
    (("policy",), ["disjoint"], "'policy' is no object"),
    (("policy", "mode"), None, "a value of 'policy' is no word"),
    (("policy", "mode"), "disjont", "'disjont' is no policy for 'mode'. Did you mean 'disjoint'?"),
    (("policy", "viod"), "ignore", "'policy' has the unknown key 'viod'. Did you mean 'void'?"),
    (("groups",), 3, "does not list the classes of each step"),
    (("groups",), ["cat", "dog"], "does not list the classes of each step"),
    (("groups", 0), [1, 2], "does not list the classes of each step"),
    (("groups",), DEEP, "does not list the classes of each step"),
    (("groups", 1), ["cow", "cat"], "it names the class 'cat' twice"),
    (("groups", 1), ["cow"], "step 1: 'new' does not name the classes that 'groups' does"),
    (("groups", 0, 0), "dgo", "step 0: 'new' does not name the classes that 'groups' does"),
    (("groups",), [], "it lists the images of 3 steps, but its classes arrive in 0"),
    (("groups",), [["cat"]], "it lists the images of 3 steps, but its classes arrive in 1"),
    (("offline",), True, "it lists the images of 3 steps, but its classes arrive in 1"),
    (("steps",), {"0": []}, "'steps' is no list"),
    (("steps",), [], "it lists the images of 0 steps, but its classes arrive in 3"),
    (("steps", 1), 7, "step 1: it is no object"),
    (("steps", 1, "step"), "1", "step 1: 'step' is no whole number"),
    (("steps", 1, "step"), 2, "step 1: it is numbered 2"),
    (("steps", 1, "images"), True, "step 1: 'images' is no whole number"),
    (("steps", 1, "images"), 5, "step 1: it says 5 images and lists 4"),
    (("steps", 1, "new"), "cow", "step 1: 'new' is no list of names"),
    (("steps", 1, "train"), None, "step 1: 'train' is no list of names"),
    (("steps", 1, "train"), ["im1", 3, "im4", "im5"], "step 1: 'train' is no list of names"),
    (("steps", 1, "train"), ["im1", "im4", "im5", "im4"], "step 1: it names the image 'im4' twice"),
    (("steps", 2, "test"), [], "step 2 has the unknown key 'test'"),
    (("note",), DEEP, "has the unknown key 'note'"),
    (("hash",), None, "the hash does not match"),
    (("hash",), DEEP, "the hash does not match"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_wrong_document_is_refused_by_name(scenario, place, value, message):
    """With a hash that fits, as someone might write it who knows the format half."""
    document = copy.deepcopy(manifest(scenario, KEYS))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    if place != ("hash",) and value is not DEEP:
        document["hash"] = manifest_hash(document)
    with pytest.raises(UserError) as caught:
        from_manifest(document, ZOO, "m.json")
    assert str(caught.value).startswith("m.json") and message in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        *[(key,) for key in ("dataset", "policy", "offline", "groups", "steps", "hash")],
        *[("policy", key) for key in ("mode", "void", "future")],
        *[("steps", 1, key) for key in ("step", "new", "images", "train")],
    ],
)
def test_missing_key_is_named(tmp_path, scenario, place):
    document = copy.deepcopy(manifest(scenario, KEYS))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    del inner[place[-1]]
    if place != ("hash",):
        document["hash"] = manifest_hash(document)
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=rf"m\.json.* lacks '{place[-1]}'"):
        read_manifest(tmp_path / "m.json")
