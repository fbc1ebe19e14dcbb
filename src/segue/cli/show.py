"""`segue show`: the resolved recipe of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from segue.cli._stories import USE
from segue.cli._tell import as_typed, print_json, tell, tell_next, with_needed
from segue.cli.options import (
    Json,
    Manifest,
    ModeOption,
    On,
    Quiet,
    Seed,
    SplitOption,
    Target,
    Words,
    flag,
    resolve_target,
    with_manifest,
)

if TYPE_CHECKING:
    from segue.core.explain import Key

STORY, PLACE = USE, 2


def command(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    seed: Seed = None,
    explained: Annotated[
        bool, flag("--explain", help="List every key with value, meaning, range and default.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Print the resolved recipe: everything that a run would use.

    segue show caf --on voc --split 15-5 --explain
    """
    from segue.core.config import as_dict, to_yaml
    from segue.core.explain import explain
    from segue.engine.scenario import check_split

    said = with_manifest(words, manifest)
    notes: list[str] = []
    config, run = resolve_target(target, on, split, mode, seed, said, say=notes.append)
    if run is None:  # a run has its split already, whatever its data has become
        check_split(config)
    if explained and as_json:
        print_json(explain(config))
    elif explained:
        for note in notes:
            tell(note)
        _print_keys(explain(config))
    elif as_json:
        print_json(as_dict(config))
    else:
        comments = "".join(f"# {note}\n" for note in notes)
        print(f"{comments}{to_yaml(config)}", end="")
    tell_next(
        f"train {as_typed(target, on, split, mode, with_needed(config, said))}", silent=quiet or as_json
    )


def _print_keys(keys: Iterable[Key]) -> None:
    """A key and its value on one line, then what it means; values that are not the default stand out."""
    console = Console(highlight=False)
    for key in keys:
        default = "no default" if key.required else f"default {_value(key.default)}"
        changed = not key.required and key.value != key.default
        console.print(Text.assemble((key.name, "bold"), "=", (_value(key.value), "green" if changed else "")))
        lines = [*([key.meaning] if key.meaning else []), f"{key.range}; {default}"]
        console.print(Padding(Text("\n".join(lines), style="dim"), (0, 0, 0, 4), expand=False))


def _value(value: object) -> str:
    """As it is typed after KEY=."""
    import json

    return value if isinstance(value, str) and value else json.dumps(value)
