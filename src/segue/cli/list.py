"""`segue list`: methods, data sets, backbones and recipes, in 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from segue.cli._stories import TRY
from segue.cli._tell import print_json, tell_next
from segue.cli.options import Json
from segue.core import plugins

STORY, PLACE = TRY, 2
COSTS_CAPTION = (
    "time, memory: relative to fine-tuning, 'python -m benchmarks methods' on scenes\n"
    "after the year: published mean IoU of VOC 15-1 overlapped; * without background,\n"
    "+ on another network or in another mode\n"
    "B a class: kept between steps, with the widths of ResNet-101 (h 256, z 2,048)\n"
    "all are written anew from papers and formulas, under this project's licence"
)
OTHER_BACKBONES = (
    {"name": "...", "about": "other timm models that give feature maps (NCHW)"},
    {"name": "smp:Unet/resnet18", "about": "model.network: networks of other libraries, hf:segformer-b0 too"},
)
NEXT = {
    "methods": "train caf --on scenes --split 5-2",
    "datasets": "data check --on scenes",
    "backbones": "plan caf --on voc --split 15-5 model.backbone=resnet50",
    "recipes": "show scenes-caf.yaml --explain",
}
TITLES = {
    "datasets": ("data set", "what it is"),
    "backbones": ("backbone", "what it is"),
    "recipes": ("recipe", "command"),
}
Rows = list[dict[str, Any]]


def method_rows() -> Rows:
    """Each method with its paper, what it keeps between steps, and what it costs (None: not measured)."""
    from segue.core.costs import read_costs
    from segue.core.declaration import keeps

    costs, rows = read_costs().methods, []
    for name in plugins.names("method"):
        method, cost = plugins.declared(name), costs.get(name)
        about = method.about
        row = {"name": name, "title": about.title, "paper": about.paper, "year": about.year}
        row["published"] = about.published or None
        figures = (None, None) if cost is None else (cost.time, cost.memory)
        row |= {"keeps": keeps(method), "class_bytes": about.of_class.bytes()}
        rows.append({**row, "time": figures[0], "memory": figures[1]})
    return rows


def dataset_rows() -> Rows:
    return [{"name": name, "about": plugins.find("dataset", name).about} for name in plugins.names("dataset")]


def backbone_rows() -> Rows:
    from segue.core.backbones import SHORT_LIST

    return [{"name": name, "about": about} for name, about in SHORT_LIST.items()]


def recipe_rows() -> Rows:
    from segue.engine.recipe import recipe_folder

    paths = sorted(recipe_folder().glob("*.yaml"))
    commands = (path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ") for path in paths)
    return [{"name": path.name, "command": command} for path, command in zip(paths, commands, strict=True)]


LISTINGS: dict[str, Callable[[], Rows]] = {
    "methods": method_rows,
    "datasets": dataset_rows,
    "backbones": backbone_rows,
    "recipes": recipe_rows,
}


def methods_table(rows: Rows) -> RenderableType:
    """A dash: not measured."""
    table = Table(box=None, pad_edge=False)
    for title in ("method", "what it is"):
        table.add_column(title, no_wrap=True)
    table.add_column("keeps")
    for title in ("time", "memory"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        figures = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("time", "memory"))
        published = f": {row['published']}" if row["published"] else ""
        paper = Text.assemble(row["title"], (f"\n{row['paper']} {row['year']}{published}", "dim"))
        kept = Text(row["keeps"])
        if row["class_bytes"]:
            kept.append(f"\n{row['class_bytes']:,} B a class", "dim")
        table.add_row(row["name"], paper, kept, *figures)
    return Group(table, Text(COSTS_CAPTION, style="dim"))


def plain_table(rows: Rows, titles: Sequence[str]) -> Table:
    table = Table(*titles, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    return table


def command(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "recipes"],
        typer.Argument(metavar="WHAT", help="What to list."),
    ] = "methods",
    as_json: Json = False,
) -> None:
    """List methods, data sets, backbones or recipes.

    segue list datasets
    """
    rows = LISTINGS[what]()
    if as_json:
        print_json(rows)
        return
    if what == "methods":
        Console().print(methods_table(rows))
    else:
        others = OTHER_BACKBONES if what == "backbones" else ()
        Console().print(plain_table([*rows, *others], TITLES[what]))
    tell_next(NEXT[what])
