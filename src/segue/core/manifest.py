"""A scenario as a file: classes by name, policies, the image keys of every step, and a hash over all of it.

A manifest may come from anywhere, so nothing in it is believed: `check_manifest` either finds every key with
its type or says what is wrong, and where.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.core.classes import ClassTable
from segue.core.errors import UserError, reason, suggest
from segue.core.ordinary import read_ordinary
from segue.core.records import write_json
from segue.core.scenario import Scenario

MANIFEST_FORMAT = "segue-scenario-1"
KEYS = ("format", "dataset", "policy", "offline", "groups", "steps", "hash")
POLICY_KEYS = ("mode", "void", "future")
STEP_KEYS = ("step", "new", "images", "train")


def manifest(scenario: Scenario, train_keys: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A scenario as a readable document: classes by name, image keys per step, policies and a hash."""
    names = scenario.classes.names
    document: dict[str, Any] = {
        "format": MANIFEST_FORMAT,
        "dataset": scenario.classes.dataset,
        "policy": {"mode": scenario.mode, "void": scenario.void, "future": scenario.future},
        "offline": scenario.offline,
        "groups": [[names[class_id] for class_id in group] for group in scenario.groups],
        "steps": [
            {
                "step": step.index,
                "new": [names[i] for i in step.new],
                "images": len(keys),
                "train": list(keys),
            }
            for step, keys in zip(scenario, train_keys, strict=True)
        ],
    }
    return document | {"hash": manifest_hash(document)}


def manifest_hash(document: Mapping[str, Any]) -> str:
    body = {key: value for key, value in document.items() if key != "hash"}
    return "sha256:" + hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_manifest(path: str | Path, document: Mapping[str, Any]) -> None:
    """Write a manifest whole or not at all."""
    check_manifest(document, str(path))
    write_json(path, document)


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Read and check a manifest file; whether it fits a data set is checked by `from_manifest`."""
    try:
        document = json.loads(read_ordinary(path).decode())
        json.dumps(document, ensure_ascii=False).encode()  # JSON may escape what is no text
    except OSError as error:
        raise UserError(f"Cannot read the manifest {path}: {reason(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a scenario manifest (a JSON object).")
    check_manifest(document, str(path))
    return document


def from_manifest(
    document: Mapping[str, Any], classes: ClassTable, where: str = "The manifest"
) -> tuple[Scenario, tuple[tuple[str, ...], ...]]:
    """The scenario of a manifest and the image keys that train each of its steps; `where` names the file."""
    check_manifest(document, where)
    if document["dataset"] != classes.dataset:
        raise UserError(
            f"{where} is for data set '{document['dataset']}', the recipe asks for '{classes.dataset}'."
        )
    try:
        groups = tuple(tuple(classes.resolve(name) for name in group) for group in document["groups"])
        scenario = Scenario(classes, groups, **document["policy"], offline=document["offline"])
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return scenario, tuple(tuple(step["train"]) for step in document["steps"])


def check_manifest(document: Mapping[str, Any], where: str) -> None:
    """Raise unless the document is a manifest that agrees with itself."""
    if document.get("format") != MANIFEST_FORMAT:
        raise UserError(
            f"{where} is not a scenario manifest: its 'format' is not '{MANIFEST_FORMAT}'"
            " (or it was written by another version)."
        )
    _check_keys(document, KEYS, where)
    _demand(isinstance(document["dataset"], str), where, "'dataset' is no name")
    _demand(isinstance(document["offline"], bool), where, "'offline' is neither true nor false")
    _demand(isinstance(document["policy"], dict), where, "'policy' is no object")
    _check_keys(document["policy"], POLICY_KEYS, f"{where}: 'policy'")
    values_are_words = all(isinstance(value, str) for value in document["policy"].values())
    _demand(values_are_words, where, "a value of 'policy' is no word")
    groups = document["groups"]
    if not (isinstance(groups, list) and all(_is_names(group) for group in groups)):
        raise UserError(f"{where} does not list the classes of each step ('groups').")
    _demand(isinstance(document["steps"], list), where, "'steps' is no list")
    for index, step in enumerate(document["steps"]):
        _check_step(step, f"{where}: step {index}")
    # Only now: the hash of a document of any shape could not even be taken.
    if document["hash"] != manifest_hash(document):
        raise UserError(
            f"{where}: the hash does not match the content: it was edited or damaged. Write it anew."
        )
    _check_agreement(document, where)


def _check_step(step: Any, where: str) -> None:
    _demand(isinstance(step, dict), where, "it is no object")
    _check_keys(step, STEP_KEYS, where)
    for key in ("step", "images"):
        _demand(type(step[key]) is int, where, f"'{key}' is no whole number")
    for key in ("new", "train"):
        _demand(_is_names(step[key]), where, f"'{key}' is no list of names")


def _check_agreement(document: Mapping[str, Any], where: str) -> None:
    """What is said twice is the same both times, and what may stand once stands once."""
    groups, steps = document["groups"], document["steps"]
    classes = [name for group in groups for name in group]
    _check_once(classes, where, "class")
    expected = [classes] if document["offline"] else groups
    _demand(
        len(steps) == len(expected),
        where,
        f"it lists the images of {len(steps)} steps, but its classes arrive in {len(expected)}",
    )
    for index, (step, group) in enumerate(zip(steps, expected, strict=True)):
        place = f"{where}: step {index}"
        _demand(step["step"] == index, place, f"it is numbered {step['step']}")
        _demand(step["new"] == group, place, "'new' does not name the classes that 'groups' does")
        found = len(step["train"])
        _demand(step["images"] == found, place, f"it says {step['images']} images and lists {found}")
        _check_once(step["train"], place, "image")


def _check_keys(values: Mapping[str, Any], wanted: Sequence[str], where: str) -> None:
    if missing := [key for key in wanted if key not in values]:
        raise UserError(f"{where} lacks '{missing[0]}'.")
    if unknown := [key for key in values if key not in wanted]:
        raise UserError(f"{where} has the unknown key {unknown[0]!r}.{suggest(unknown[0], wanted)}")


def _check_once(names: Sequence[str], where: str, kind: str) -> None:
    if len(set(names)) < len(names):
        (doubled, _), *_ = Counter(names).most_common(1)
        raise UserError(f"{where}: it names the {kind} {doubled!r} twice.")


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _demand(condition: bool, where: str, otherwise: str) -> None:
    if not condition:
        raise UserError(f"{where}: {otherwise}.")
