"""What a user asks of a study: methods and settings that may stand in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.core.config import RunConfig, as_dict
from segue.core.errors import UserError
from segue.core.neutral import MAY_CHANGE
from segue.core.overrides import differences, parse_overrides


def setting_text(config: RunConfig) -> str:
    """Data set, split and mode; of a data set in a file of one's own the name without its place."""
    scenario = config.scenario
    dataset = Path(scenario.dataset).stem if scenario.dataset.endswith(".py") else scenario.dataset
    split = scenario.split if isinstance(scenario.split, str) else "custom"
    return f"{dataset} {split} {scenario.mode}"


def named_methods(methods: Sequence[str], known: Sequence[str]) -> list[str]:
    """The methods that are asked for, each once; `all` are those that are known."""
    names = [each for name in methods if name for each in (known if name == "all" else [name])]
    if not names:
        raise UserError(f"Which methods? Name some of: {', '.join(known)}, or all.")
    return list(dict.fromkeys(names))


def check_words(words: Sequence[str], not_free: Mapping[str, str]) -> None:
    """Settings apply to all methods. `not_free`: keys that may not be set, and why."""
    said = parse_overrides(words)
    if "method" in said:
        word = next(word for word in words if word.split("=")[0].split(".")[0] == "method")
        raise UserError(
            f"'{word}' belongs to one method, but settings apply to all methods here. Leave it out, or train"
            " that method alone: segue train."
        )
    check_free(words, not_free)


def check_free(words: Sequence[str], not_free: Mapping[str, str]) -> None:
    for key, reason in not_free.items():
        if says(parse_overrides(words), key):
            raise UserError(f"'{key}' is not free here: {reason}.")


def says(values: Any, key: str) -> bool:
    """Whether nested values have a dotted key."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def check_scenarios(recipes: Mapping[str, RunConfig]) -> None:
    """Settings of a method's own may not lead it to other data than the others have."""
    first, *others = ((label, as_dict(recipe)) for label, recipe in recipes.items())
    for label, recipe in others:
        for section in ("scenario", "data", "eval"):
            lines = differences(first[1][section], recipe[section], section)
            if lines := [line for line in lines if line.split(":")[0] not in MAY_CHANGE]:
                raise UserError(f"{first[0]} and {label} cannot stand in one table: {'; '.join(lines)}.")
