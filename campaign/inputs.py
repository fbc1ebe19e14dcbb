"""Strange and nearly right input for what reads text: words, recipes, splits, records, manifests."""

from __future__ import annotations

import json
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from campaign.near import near, near_words
from campaign.near import recipes as complete_recipes
from campaign.small_run import Attack, finished_run
from campaign.strategies import BYTES, RECIPES, SPLITS, VALUES, WORDS, damaged, documents
from campaign.tally import Tally, try_both
from segue.core.config import RunConfig, as_dict, recipe_hash, to_yaml
from segue.core.manifest import from_manifest, manifest, manifest_hash, read_manifest
from segue.core.records import read_run, write_text
from segue.core.scenario import Scenario, make_scenario
from segue.data.datasets.scenes import Config, Scenes
from segue.engine.recipe import resolve
from segue.report.markdown import markdown_tables


def same_again(tally: Tally, config: RunConfig, path: Path) -> None:
    """What was accepted is the same recipe after it has been stored and read."""
    write_text(path, to_yaml(config))
    again = resolve(file=path)
    both = [json.dumps(as_dict(each)) for each in (config, again)]
    if recipe_hash(config) != recipe_hash(again) or both[0] != both[1]:
        tally.fail("another recipe", to_yaml(config))


def words(tally: Tally, tries: int, seed: int, place: Path) -> None:
    (known,) = (each for each in complete_recipes() if each["method"]["name"] == "mib")
    usual = near_words(known)

    def work(said: list[str]) -> None:
        same_again(tally, resolve("mib", "scenes", "2-1", overrides=said), place / "again.yaml")

    strange = st.lists(WORDS, min_size=1, max_size=3)
    try_both(tally, usual, strange, work, tries, seed)


def recipes(tally: Tally, tries: int, seed: int, place: Path) -> None:
    path = place / "recipe.yaml"
    known = complete_recipes()
    texts = [yaml.safe_dump(each, sort_keys=False).encode() for each in known]

    def work(value: Any) -> None:
        content = (
            value
            if isinstance(value, bytes)
            else yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode("utf-8", "replace")
        )
        path.write_bytes(content)
        same_again(tally, resolve(file=path), place / "again.yaml")

    usual = near(known)
    strange = st.one_of(RECIPES, VALUES, BYTES, st.sampled_from(texts).flatmap(damaged))
    try_both(tally, usual, strange, work, tries, seed)


def splits(tally: Tally, tries: int, seed: int, place: Path) -> None:
    table = Scenes(Config(), "train").classes
    orders = st.one_of(st.none(), SPLITS)

    def work(pair: tuple[Any, Any]) -> None:
        split, order = pair
        words = [f"scenario.split={split!r}", *([] if order is None else [f"scenario.order={order!r}"])]
        config = resolve("mib", "scenes", None, overrides=words)
        scenario = make_scenario(table, config.scenario.split, order=config.scenario.order)
        _check_steps(tally, scenario, pair)

    usual = _valid_splits(list(table.names.items()))
    try_both(tally, usual, st.tuples(SPLITS, orders), work, tries, seed)


def _valid_splits(classes: list[tuple[int, str]]) -> st.SearchStrategy[tuple[Any, Any]]:
    """B-I that fits, with an order, or lists of the classes of each step."""
    ids, count = [number for number, _ in classes], len(classes)
    fitting = [f"{b}-{i}" for b in range(1, count) for i in range(1, count - b + 1) if (count - b) % i == 0]
    orders = st.one_of(
        st.none(),
        st.permutations(ids),
        st.permutations([name for _, name in classes]),
        st.integers(0, 99).map(lambda number: f"random-{number}"),
    )

    def lists(order: list[int], cuts: set[int]) -> list[list[int]]:
        ends = [*sorted(cuts), count]
        return [list(order[a:b]) for a, b in zip([0, *ends], ends, strict=False)]

    listed = st.builds(lists, st.permutations(ids), st.sets(st.integers(1, count - 1), max_size=5))
    return st.one_of(st.tuples(st.sampled_from(fitting), orders), st.tuples(listed, st.none()))


def _check_steps(tally: Tally, scenario: Scenario, about: Any) -> None:
    """Every class arrives once, and is old from then on."""
    groups = [set(step.new) for step in scenario]
    seen = list(accumulate(groups, set.union))
    fits = all(set(step.seen) == known for step, known in zip(scenario, seen, strict=True))
    if not fits or sum(map(len, groups)) != len(seen[-1]) or not all(groups):
        tally.fail("wrong steps", repr(about))


def records(tally: Tally, tries: int, seed: int, place: Path) -> None:
    folder = Path(shutil.copytree(finished_run(place), place / "records", dirs_exist_ok=True))
    path = folder / "steps" / "1.json"
    content = path.read_bytes()

    def work(value: Any) -> None:
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        markdown_tables([read_run(folder)])

    original = json.loads(content)
    strange = st.one_of(documents(original), damaged(content))
    try_both(tally, near([original]), strange, work, tries, seed)


def manifests(tally: Tally, tries: int, seed: int, place: Path) -> None:
    content = (finished_run(place) / "scenario.json").read_bytes()
    path, original = place / "manifest.json", json.loads(content)
    table = Scenes(Config(classes=3), "train").classes

    def work(value: Any) -> None:
        if isinstance(value, dict):  # right by its own hash
            value = {**value, "hash": manifest_hash(value)}
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        document = read_manifest(path)
        resolve("mib", None, None, overrides=[f"scenario.manifest={path}"])
        if manifest(*from_manifest(document, table)) != document:
            tally.fail("another manifest", repr(value))

    usual = _other_images(original)
    strange = st.one_of(near([original]), documents(original), damaged(content))
    try_both(tally, usual, strange, work, tries, seed)


def _other_images(original: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A manifest with other images and policies, which agrees with itself."""
    keys = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=6)

    def rebuilt(images: list[list[str]], mode: str, void: str, future: str) -> dict[str, Any]:
        steps = [
            {**step, "train": train, "images": len(train)}
            for step, train in zip(original["steps"], images, strict=True)
        ]
        return {**original, "policy": {"mode": mode, "void": void, "future": future}, "steps": steps}

    count = len(original["steps"])
    return st.builds(
        rebuilt,
        st.lists(keys, min_size=count, max_size=count),
        st.sampled_from(["overlapped", "disjoint", "sequential", "other"]),
        st.sampled_from(["background", "ignore"]),
        st.sampled_from(["ignore", "background"]),
    )


TEXTS: dict[str, tuple[Attack, int]] = {
    "words": (words, 1200),
    "recipes": (recipes, 1200),
    "splits": (splits, 1300),
    "records": (records, 1300),
    "manifests": (manifests, 1300),
}
"""classes of attack, and the tries of a whole campaign"""
