"""The scale of an experiment of the paper: which data, split and recipe carry out which of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import segue
from segue.core import plugins
from segue.core.ablation import read_ablation
from segue.core.config import RunConfig, validate
from segue.core.errors import UserError, suggest
from segue.core.expected import PREFIX, Expected, Rows, check_expected, read_expected, write_expected
from segue.core.overrides import merge
from segue.core.paper import PaperItem, PaperRow, read_item
from segue.core.records import read_yaml
from segue.engine.recipe import find_recipe, recipe_folder, resolve
from segue.studies.ablate import row_recipe

FILES = Path(__file__).parent / "paper"
SCALES = "scales"
"""file among those of the items"""
TOLERANCE = 0.5
"""points by which later runs may miss values that are stored for the first time"""


@dataclass(frozen=True)
class Setting:
    """What is run for a setting of the paper."""

    dataset: str
    """data set"""
    split: str
    recipe: str = ""
    """recipe, if not that of the scale"""
    folder: str = ""
    """word that names the folder of the data; the data set's own name if there is none"""
    orders: tuple[str, ...] = ()
    """class orders whose mean is taken; none: the data set's own order alone"""
    instead: str = ""
    """data that stand for the paper's"""


@dataclass(frozen=True)
class Scale:
    """All settings of the paper at one size."""

    about: str
    seeds: int
    settings: dict[str, Setting]
    """data and recipe by data set and split of the paper"""
    recipe: str = ""
    """protocol of all settings that name none of their own"""
    flops: float | None = None
    """FLOPs of an image in an iteration of fine-tuning"""
    minutes: float = 0.0
    """time of a run on one core, where there are no FLOPs"""
    words: tuple[str, ...] = ()
    folders: dict[str, str] = field(default_factory=dict)
    """data by the word that names it"""
    records: tuple[str, ...] = ()
    """folders of stored runs, below those of the checkout's results"""
    name: str = ""

    def setting(self, paper: str) -> tuple[Setting, str]:
        """What is run for 'voc 15-5 disjoint', and in which mode."""
        name, _, mode = paper.rpartition(" ")
        return self.settings[name], mode

    def with_words(self, words: Sequence[str]) -> Scale:
        """With the user's words; NAME=FOLDER says where the data of that name are."""
        known = {each.folder or each.dataset for each in self.settings.values()} - {"scenes"}
        folders, others = dict(self.folders), list(self.words)
        for word in words:
            key, equals, value = word.partition("=")
            if equals and "." not in key and key not in known:
                needs = "".join(f" {name}=FOLDER" for name in sorted(known)) or " no data folder"
                raise UserError(f"'{word}' is not understood: scale {self.name} takes{needs}.")
            if key in known:
                folders[key] = value
            else:
                others.append(word)
        return replace(self, folders=folders, words=tuple(others))


def item_names() -> list[str]:
    """The tables and figures that there are files of, in the paper's order."""
    stems = [path.stem for path in FILES.glob("*.yaml")]
    names = [name for name in stems if name != SCALES and not name.startswith(PREFIX)]
    return sorted(names, key=lambda name: (name.rstrip("0123456789") != "table", len(name), name))


def load_item(name: str) -> PaperItem:
    if name not in item_names():
        raise UserError(f"There is no table or figure '{name}'.{suggest(name, [*item_names(), 'all'])}")
    return read_item(FILES / f"{name}.yaml")


def load_scale(name: str) -> Scale:
    document = read_yaml(FILES / f"{SCALES}.yaml")
    if name not in document:
        raise UserError(f"There is no scale '{name}'.{suggest(name, document)}")
    values: dict[str, Any] = dict(document[name])
    settings = {key: validate(Setting, each, f"{name}.{key}") for key, each in values["settings"].items()}
    return validate(Scale, values | {"settings": settings, "name": name}, "")


def expected_of(scale: str) -> Expected:
    """What was once reached at a scale, checked against the tables."""
    path = FILES / f"{PREFIX}{scale}.yaml"
    found = read_expected(path)
    for name, rows in found.tables.items():
        item = load_item(name)
        columns = {block: len(each.columns) for block, each in item.blocks.items()}
        check_expected(path, name, rows, dict.fromkeys(item.rows, columns))
    return found


def accept(scale: str, tables: Mapping[str, Rows]) -> Path:
    """Store what is reached now as what is expected from now on."""
    path = FILES / f"{PREFIX}{scale}.yaml"
    if results_folder() is None:
        raise UserError("--accept changes values that come with the package: use it in a checkout of Segue.")
    write_expected(path, scale, read_expected(path).tolerance or TOLERANCE, tables)
    return path


def results_folder() -> Path | None:
    """The stored results of a checkout; an installed package has none."""
    folder = Path(segue.__file__).parents[2] / "results"
    return folder if folder.is_dir() else None


def row_label(row: PaperRow) -> str:
    """First part of the name of the row's run folders."""
    return row.label or row.run or f"part-{row.part}"


def recipe_of(
    item: PaperItem, row: PaperRow, scale: Scale, paper: str, order: str = "", words: Sequence[str] = ()
) -> RunConfig:
    """The recipe of a row in a setting of the paper, at a scale, with seed 0."""
    setting, mode = scale.setting(paper)  # type: tuple[Setting, str | None]
    if _is_joint(row):  # one run for all splits and modes
        same = (
            each
            for each in scale.settings.values()
            if (each.dataset, each.folder) == (setting.dataset, setting.folder)
        )
        setting, mode = next(same), None
    split, file = setting.split + order, find_recipe(setting.recipe or scale.recipe)
    word = setting.folder or setting.dataset
    root = [f"data.root={scale.folders[word]}"] if word in scale.folders else []
    said = [*scale.words, *root, *words, *row.words]
    if row.part:
        table, part = ablation_row(item.parts, row.part)
        part = replace(part, params=merge(part.params, row.params), times=row.times or part.times)
        return row_recipe(table, part, setting.dataset, split, mode, said, 0, file)
    return resolve(row.run, setting.dataset, split, mode, [*said, "train.seed=0"], file)


@cache
def ablation_row(tables: tuple[str, ...], run: str) -> tuple[Any, Any]:
    """The table of recipes/ablations with this row, and the row."""
    for name in tables:
        table = read_ablation(recipe_folder() / "ablations" / f"{name}.yaml")
        for row in table.rows:
            if row.run == run:
                return table, row
    raise UserError(f"No row of {', '.join(tables)} in recipes/ablations is called '{run}'.")


def _is_joint(row: PaperRow) -> bool:
    return row.run in plugins.names("method") and plugins.declared(row.run).offline
