"""`segue list`: methods, data sets, backbones and recipes, in 80 columns."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from segue.core import plugins

COSTS_CAPTION = "time, memory: relative to fine-tuning, by 'make bench' on scenes"


def methods() -> RenderableType:
    """Each method with its paper, what it keeps between steps, and what it costs (a dash: not measured)."""
    from segue.core.costs import read_costs
    from segue.core.declaration import keeps

    costs, table = read_costs().methods, Table(box=None, pad_edge=False)
    for title in ("method", "what it is"):
        table.add_column(title, no_wrap=True)
    table.add_column("keeps between steps")
    for title in ("time", "memory"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in plugins.names("method"):
        method, cost = plugins.declared(name), costs.get(name)
        about = method.about
        figures = (f"{cost.time:.2f}", f"{cost.memory:.2f}") if cost is not None else ("-", "-")
        paper = Text.assemble(about.title, (f"\n{about.paper} {about.year}", "dim"))
        table.add_row(name, paper, keeps(method), *figures)
    return Group(table, Text(COSTS_CAPTION, style="dim"))


def datasets() -> RenderableType:
    table = _table("data set", "what it is")
    for name in plugins.names("dataset"):
        table.add_row(name, plugins.find("dataset", name).about)
    return table


def backbones() -> RenderableType:
    from segue.models.backbone import SHORT_LIST

    table = _table("backbone", "what it is")
    for name, about in SHORT_LIST.items():
        table.add_row(name, about)
    table.add_row("...", "other timm models that give feature maps (NCHW)")
    return table


def recipes() -> RenderableType:
    from segue.engine.recipe import recipe_folder

    table = _table("recipe", "command")
    for path in sorted(recipe_folder().glob("*.yaml")):
        table.add_row(path.name, path.read_text(encoding="utf-8").splitlines()[0].lstrip("# "))
    return table


LISTINGS = {"methods": methods, "datasets": datasets, "backbones": backbones, "recipes": recipes}


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title)
    return table


def command(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "recipes"],
        typer.Argument(metavar="WHAT", help="methods, datasets, backbones or recipes."),
    ],
) -> None:
    """List methods, data sets, backbones or recipes."""
    Console().print(LISTINGS[what]())
