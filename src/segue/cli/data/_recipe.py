"""The recipe behind `segue data check` and `segue data show`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from segue.cli.options import recipe_of_run

if TYPE_CHECKING:
    from segue.core.config import RunConfig


def data_recipe(
    on: str | None,
    split: str | None,
    mode: str | None,
    words: Sequence[str],
    source: Path | None = None,
    device: str = "auto",
    say: Callable[[str], None] | None = None,
) -> RunConfig:
    """The recipe of a run on this data. `source` is a recipe file or a run folder.

    Unless that says otherwise the method is caf, as in the command to train it, and all classes come at once.
    """
    from segue.core.records import read_yaml
    from segue.engine.recipe import resolve

    if source is not None and source.is_dir():
        return recipe_of_run(source, on, split, mode, words)
    stored = read_yaml(source) if source is not None else {}
    scenario, method = (stored.get(name) or {} for name in ("scenario", "method"))
    said = any(word.startswith(("scenario.split=", "scenario.manifest=")) for word in words)
    said = said or bool(split or scenario.get("split") or scenario.get("manifest"))
    name = None if method.get("name") else "caf"
    return resolve(name, on, split if said else "offline", mode, words, source, device, say)
