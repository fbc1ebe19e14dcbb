"""Tables and figures of the paper by name: the runs that one needs, those that are missing, the outcome."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.core.errors import UserError, reason
from segue.core.ordinary import user_path
from segue.core.progress import Display
from segue.core.records import read_run, write_text
from segue.report.markdown import generated_page
from segue.report.paper_formats import paper_csv, paper_latex, paper_markdown, paper_terminal
from segue.report.paper_table import FilledTable
from segue.report.ranks import rank_chart
from segue.studies.figures import draw, missing_text, serves, write_charts
from segue.studies.grid import Grid, distinct, make_grid
from segue.studies.jobs import Workers
from segue.studies.missing import is_done, run_missing
from segue.studies.pages import check_page, command_line, write_page
from segue.studies.price import price
from segue.studies.scale import Scale, expected_of, item_names, load_item, load_scale, results_folder
from segue.studies.stored import StoredRuns, find_runs

IMAGE = "image="
"""begin of a word that names a test image for a figure"""
FORMATS = {"md": paper_markdown, "tex": paper_latex, "csv": paper_csv}


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    items: tuple[str, ...]
    scale: Scale
    seeds: int
    out: Path
    images: tuple[str, ...] = ()
    """test images that figures show, by name; else those with the largest gain"""
    fresh: bool = False
    """whether stored results are left out, so that their runs are trained again"""

    @property
    def files(self) -> Path:
        """Folder of the tables and figures."""
        return self.out / self.scale.name


def make_request(
    items: Sequence[str], scale: str, words: Sequence[str], seeds: int | None, out: Path, fresh: bool = False
) -> Request:
    """A request that has been checked: nothing is trained before."""
    names = item_names() if list(items) == ["all"] else list(dict.fromkeys(items))
    for name in names:
        load_item(name)
    images = [word.removeprefix(IMAGE) for word in words if word.startswith(IMAGE)]
    chosen = load_scale(scale).with_words([word for word in words if not word.startswith(IMAGE)])
    _check_out(out)
    return Request(tuple(names), chosen, seeds or chosen.seeds, out, tuple(images), fresh)


def reproduce(
    request: Request,
    from_records: bool = False,
    page: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
    quiet: bool = False,
    workers: Workers | None = None,
) -> list[FilledTable]:
    """Carry out what is missing, unless `from_records`; show, and write, every table."""
    console = console or Console()
    check_page(page)
    display = Display(console, quiet)
    grids = [
        make_grid(name, load_item(name), request.scale, request.seeds, request.out) for name in request.items
    ]
    stored = collect(grids, request)
    failed = None
    if not from_records and (missing := distinct(grids)):
        if words := dict.fromkeys(word for grid in grids for word in needed_words(grid)):
            raise UserError(f"Where are the images? Add {' '.join(words)}.")
        for name, folder in request.scale.folders.items():
            if not user_path(folder).is_dir():
                raise UserError(f"{name}={folder}: there is no such folder.")
        failed = run_missing(missing, request.out, device, display, workers)
        for grid in grids:
            add_finished(grid)
    tables = [
        grid.table(request.out, table_notes(grid, stored)) for grid in grids if grid.item.kind == "table"
    ]
    for table in tables:
        console.print(paper_terminal(table, console.width))
        for ending, written in FORMATS.items():
            _write(request.files / f"{table.name}.{ending}", written(table), display)
        if (ranks := rank_chart(table.title, table.scores())) is not None:
            write_charts(f"{table.name}-ranks", iter([("", ranks)]), request.files, display)
    for grid in grids:
        if grid.item.kind != "table":
            write_charts(grid.name, draw(grid, request.images, display), request.files, display)
            if grid.missing and grid.item.kind != "distribution":
                console.print(missing_text(grid), highlight=False, soft_wrap=True)
    if failed is not None:
        raise failed
    if page is not None:
        write_page(page, paper_page(tables, request, from_records), display)
    return tables


def list_items(request: Request) -> list[dict[str, Any]]:
    """Each item with its runs: how many are done, what the others cost, what has to be said for them."""
    grids = [
        make_grid(name, load_item(name), request.scale, request.seeds, request.out) for name in request.items
    ]
    collect(grids, request)
    rows = []
    for grid in grids:
        places = {wanted.place for wanted in grid.wanted}
        row = {"item": grid.name, "title": grid.item.title, "runs": len(places), "done": len(grid.found)}
        rows.append(row | {"cost": price(grid.missing, request.scale), "needs": " ".join(needed_words(grid))})
    return rows


def needed_words(grid: Grid) -> list[str]:
    """Folders of data that nobody has named, for the runs that are missing."""
    found = []
    for wanted in grid.wanted:
        if wanted.place not in grid.found and getattr(wanted.recipe.data, "root", "not needed") is None:
            setting, _ = grid.scale.setting(grid.item.blocks[wanted.block].setting)
            found.append(f"{setting.folder or setting.dataset}=FOLDER")
    return list(dict.fromkeys(found))


def collect(grids: Sequence[Grid], request: Request) -> StoredRuns:
    """Take the runs that are finished, from the folder of this request and from the stored results."""
    results = None if request.fresh else results_folder()
    folders = [request.files, *(results / each for each in request.scale.records if results is not None)]
    stored = find_runs(folder for folder in [*folders, request.out] if folder.is_dir())
    for grid in grids:
        for wanted in grid.wanted:
            run = None if wanted.place in grid.found else stored.match(wanted.recipe, wanted.place.name)
            if run is not None and serves(grid.item.kind, run):
                grid.found[wanted.place] = run
    return stored


def add_finished(grid: Grid) -> None:
    for place, recipe in grid.missing.items():
        if is_done(place, recipe):
            grid.found[place] = read_run(place)


def check_verifiable(request: Request) -> None:
    """Said before hours of training: without stored values there is nothing to hold runs against."""
    known = expected_of(request.scale.name).tables
    if not any(name in known for name in request.items):
        values = f"of {', '.join(known)}" if known else "of no table"
        raise UserError(
            f"There is nothing to verify: at scale {request.scale.name} values {values} are stored."
            " Leave --verify out; in a checkout --accept stores today's values."
        )


def table_notes(grid: Grid, stored: StoredRuns) -> list[str]:
    """What has to be said below a table."""
    notes = [f"Stands for the paper's data: {'; '.join(grid.instead)}."] if grid.instead else []
    single = any(
        what.startswith("class ") for each in grid.item.blocks.values() for what in each.columns.values()
    )
    if grid.instead and single:
        notes.append("Columns of single classes stay empty where these data have no such class.")
    if grid.scale.name != "paper":
        notes.append(
            "The paper's numbers belong to ResNet-101 at 512 pixels: compare the order of rows, not values."
        )
    orders = {order for wanted in grid.wanted for order in [wanted.order] if order}
    if orders:
        notes.append(f"ADE20K: mean over the class orders {' and '.join(sorted(orders))}.")
    return [*notes, *stored.notes]


def paper_page(tables: Sequence[FilledTable], request: Request, from_records: bool) -> str:
    """All tables as one Markdown page, with what agrees with the paper and what does not."""
    options = {"scale": request.scale.name, "seeds": request.seeds}
    command = command_line("reproduce", list(request.items), options, ())
    command += " --from-records" if from_records else ""
    parts: list[str] = []
    for table in tables:
        parts.append(paper_markdown(table))
        if told := table.item.text.get(table.scale):
            parts.append(told)
        parts += table.agreement()
    return generated_page(tables[0].item.title if len(tables) == 1 else "The paper's tables", command, parts)


def _write(path: Path, text: str, display: Display) -> None:
    write_text(path, text)
    display.say(f"Written: {path}")


def _check_out(out: Path) -> None:
    """Said before hours of training."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(
            f"{out} cannot be written ({reason(error)}): name another folder with --out."
        ) from error
