"""`segue reproduce`: which records fill which cells, what is left out, what is run, what is verified."""

from __future__ import annotations

import dataclasses
import io
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from segue import cli
from segue.core.config import RunConfig, to_yaml
from segue.core.errors import UserError
from segue.core.expected import write_expected
from segue.core.records import StepRecord, read_run
from segue.engine.recipe import complete, named_rows, resolve
from segue.report.files import write_report
from segue.report.paper_formats import latex, paper_csv, paper_latex, paper_markdown
from segue.report.paper_table import FilledTable
from segue.studies import reproduce as study
from segue.studies import scale
from segue.studies.grid import Grid, make_grid
from segue.studies.missing import is_done
from segue.studies.price import image_passes
from segue.studies.reproduce import collect, make_request, reproduce
from segue.studies.scale import load_item

STUDY = "segue.studies.reproduce"


def store(place: Path, recipe: RunConfig, classes: int, sizes: Iterable[int], tenths: int) -> None:
    """A finished run whose classes all have IoU tenths / 10."""
    place.mkdir(parents=True)
    (place / "recipe.yaml").write_text(to_yaml(recipe))
    sizes, names = list(sizes), [f"class {index}" for index in range(classes)]
    groups = tuple(tuple(names[sum(sizes[:k]) : sum(sizes[: k + 1])]) for k in range(len(sizes)))
    offline = recipe.method.name == "joint"
    for step in [0] if offline else range(len(sizes)):
        seen = classes if offline else sum(sizes[: step + 1])
        matrix = np.diag([100, *[tenths] * seen])
        matrix[1:, 0] = 10 - tenths
        fields = {"run": place.name, "method": recipe.method.name, "dataset": recipe.scenario.dataset}
        fields |= {"classes": ("background", *names[:seen]), "groups": groups, "seed": recipe.train.seed}
        rest = ("policy", "versions", "losses", "seconds", "images", "parameters")
        StepRecord(
            **fields, **{name: {} for name in rest}, step=step, offline=offline, recipe_hash="",
            peak_memory=0,
            confusion=tuple(map(tuple, matrix.tolist())),
        ).write(place)  # fmt: skip


def grid_of(item: str, out: Path, size: str = "quick", words: Iterable[str] = ()) -> Grid:
    request = make_request([item], size, list(words), None, out)
    return make_grid(item, load_item(item), request.scale, request.seeds, out)


SIZES = {"5-4": (5, 4), "6-3": (6, 3), "8-1": (8, 1), "4-1": (4, 1, 1, 1, 1, 1), "3-3": (3, 3, 3)}


def store_all(item: str, out: Path, tenths: Callable[[str], int] = lambda row: 5) -> None:
    for wanted in {each.place: each for each in grid_of(item, out).wanted}.values():
        store(wanted.place, wanted.recipe, 9, SIZES[str(wanted.recipe.scenario.split)], tenths(wanted.row))


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STUDY}.run_missing", lambda runs, *_: pytest.fail(f"to be run: {list(runs)}"))


def made(item: str, out: Path, **given: object) -> FilledTable:
    request = make_request([item], "quick", [], None, out)
    (table,) = reproduce(request, from_records=True, console=Console(file=io.StringIO()), **given)
    return table


def test_records_fill_the_table_in_the_layout_of_the_paper(tmp_path: Path) -> None:
    store_all("table4", tmp_path, lambda row: 6 if row == "Ours" else 4)
    table = made("table4", tmp_path)
    assert [row.name for row in table.rows] == ["Only Step 1", "Fine Tuning", "Ours"]
    means = {row.name: [cell.ours.mean for cell in row.cells["VOC 15-5"]] for row in table.rows}
    assert means["Ours"] == pytest.approx([60] * 3) and means["Fine Tuning"] == pytest.approx([40] * 3)
    assert means["Only Step 1"][0] == pytest.approx(40) and np.isnan(means["Only Step 1"][1:]).all()
    assert table.best() == {("Ours", block, place) for block in table.item.blocks for place in range(3)}
    for ending in ("md", "tex", "csv"):
        assert (tmp_path / "quick" / f"table4.{ending}").is_file()


def test_formats_have_all_columns(tmp_path: Path) -> None:
    store_all("table2", tmp_path)
    table = made("table2", tmp_path)
    columns = len(list(table.columns()))
    assert columns == 14
    rows = [
        line for line in paper_latex(table).splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {columns + 1} and len(rows) == 11
    assert {line.count("|") for line in paper_markdown(table).splitlines() if line[:1] == "|"} == {
        columns + 3
    }
    lines = paper_csv(table).splitlines()
    assert lines[0].count(",") == 1 + 4 * columns and "100-10 121-130 ours" in lines[0]
    assert latex("50% of a_b & c") == r"50\% of a\_b \& c"


def test_mean_ranks_over_the_blocks_are_drawn(tmp_path: Path) -> None:
    store_all("table5", tmp_path, lambda row: 3 + row.count("+"))
    table = made("table5", tmp_path)
    assert set(table.scores()) == set(table.item.blocks) and "Joint" not in str(table.scores())
    assert (tmp_path / "quick" / "table5-ranks.svg").is_file()


def test_runs_of_another_protocol_are_named_and_left_out(tmp_path: Path) -> None:
    store_all("table4", tmp_path)
    wanted = next(each for each in grid_of("table4", tmp_path).wanted if each.row == "Ours")
    shutil.rmtree(wanted.place)
    other = dataclasses.replace(wanted.recipe, train=dataclasses.replace(wanted.recipe.train, epochs=99))
    store(tmp_path / "else" / "caf", other, 9, (5, 4), 9)
    table = made("table4", tmp_path)
    ours = table.rows[2]
    assert not ours.cells["VOC 15-5"][0].run and ours.cells["ADE 100-50"][0].run
    assert any("train.epochs: 99 -> " in note and "1 run of another protocol" in note for note in table.notes)


def test_rows_of_one_method_are_no_other_protocol(tmp_path: Path) -> None:
    store_all("table5", tmp_path)  # rows that differ in the settings of CAF alone
    assert not [note for note in made("table5", tmp_path).notes if "another protocol" in note]
    assert not [note for note in made("table7", tmp_path).notes if "another protocol" in note]


def test_columns_of_classes_that_the_data_lack_are_explained(tmp_path: Path) -> None:
    assert any("single classes" in note for note in made("table3", tmp_path).notes)
    assert not any("single classes" in note for note in made("table7", tmp_path).notes)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "recipe.yaml").write_text("method: 3\n")
    assert any("broken is left out" in note for note in made("table4", tmp_path).notes)


def test_a_packed_study_serves_like_its_folders(tmp_path: Path) -> None:
    store_all("table4", tmp_path / "out")
    before = made("table4", tmp_path / "out")
    runs = [read_run(place) for place in sorted((tmp_path / "out" / "quick").glob("*/*"))]
    write_report(runs, tmp_path / "out" / "quick" / "study.jsonl")
    for run in runs:
        shutil.rmtree(run.folder)
    after = made("table4", tmp_path / "out")
    assert after.rows == before.rows and after.sources == before.sources
    assert is_done(runs[0].folder, complete(runs[0].recipe))
    with pytest.raises(UserError, match="started with another recipe"):
        is_done(runs[0].folder, complete(runs[1].recipe))


def test_joint_of_one_split_serves_all(tmp_path: Path) -> None:
    wanted = [each for each in grid_of("table1", tmp_path).wanted if each.row == "Joint"]
    assert len(wanted) == 6 and len({each.place for each in wanted}) == 1
    store(wanted[0].place, wanted[0].recipe, 9, (8, 1), 7)
    row = next(row for row in made("table1", tmp_path).rows if row.name == "Joint")
    assert all(cell.ours.mean == pytest.approx(70) for cells in row.cells.values() for cell in cells)


def test_class_orders_are_averaged_and_none_may_lack(tmp_path: Path) -> None:
    grid = grid_of("table4", tmp_path, "paper", [f"ade20k={tmp_path}", f"voc={tmp_path}"])
    both = [each for each in grid.wanted if (each.row, each.block) == ("Ours", "ADE 100-50")]
    assert [each.order for each in both] == ["a", "b"] and both[1].recipe.scenario.order == "b"
    store(both[0].place, both[0].recipe, 150, (100, 50), 4)
    collect([grid], make_request(["table4"], "paper", [], None, tmp_path))
    assert not grid.cells("Ours", "ADE 100-50")[0].run
    store(both[1].place, both[1].recipe, 150, (100, 50), 8)
    collect([grid], make_request(["table4"], "paper", [], None, tmp_path))
    assert grid.cells("Ours", "ADE 100-50")[0].ours.mean == pytest.approx(60)


def test_what_is_missing_is_run_and_what_is_done_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all("table4", tmp_path)
    lost = next(each.place for each in grid_of("table4", tmp_path).wanted if each.row == "Ours")
    shutil.rmtree(lost)
    asked: list[Path] = []
    monkeypatch.setattr(f"{STUDY}.run_missing", lambda runs, *_: asked.extend(runs))
    reproduce(make_request(["table4"], "quick", [], None, tmp_path), console=Console(file=io.StringIO()))
    assert asked == [lost]


def expect(monkeypatch: pytest.MonkeyPatch, folder: Path, tables: dict) -> None:
    """Files of items with values that were once reached at scale quick, tolerance 0.5."""
    shutil.copytree(scale.FILES, folder)
    (folder / "expected-quick.yaml").unlink(missing_ok=True)
    write_expected(folder / "expected-quick.yaml", "quick", 0.5, tables)
    monkeypatch.setattr(scale, "FILES", folder)


def asked(out: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.app, ["reproduce", "table4", "--from-records", "--out", str(out), *words])


@pytest.mark.parametrize(("value", "code"), [(50.0, 0), (50.4, 0), (58.0, 1), (42.0, 1)])
def test_verify_holds_runs_against_what_was_once_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    store_all("table4", tmp_path / "out")
    expect(monkeypatch, tmp_path / "items", {"table4": {"Ours": {"VOC 15-5": (value, None, None)}}})
    result = asked(tmp_path / "out", "--verify")
    assert result.exit_code == code, result.output
    assert ("Ours: differs" in result.output) == bool(code)
    assert ("Verified: 1 rows of table4" in result.output) == (not code)


def test_a_row_without_its_records_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(monkeypatch, tmp_path / "items", {"table4": {"Ours": {"VOC 15-5": (50.0, None, None)}}})
    assert made("table4", tmp_path / "out").broken() == ["Ours: not run"]
    assert asked(tmp_path / "out", "--verify").exit_code == 1


def test_without_stored_values_there_is_nothing_to_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all("table4", tmp_path / "out")
    expect(monkeypatch, tmp_path / "items", {"table7": {"h": {"15-1 disjoint": (1.0, 2.0, 3.0)}}})
    result = asked(tmp_path / "out", "--verify")
    assert isinstance(result.exception, UserError) and "nothing to verify" in str(result.exception)


def test_what_is_accepted_is_verified_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all("table4", tmp_path / "out")
    expect(monkeypatch, tmp_path / "items", {"table7": {"h": {"15-1 disjoint": (1.0, 2.0, 3.0)}}})
    assert asked(tmp_path / "out", "--accept").exit_code == 0
    stored = scale.expected_of("quick")
    assert set(stored.tables) == {"table4", "table7"} and stored.tolerance == 0.5
    assert stored.tables["table4"]["Only Step 1"]["VOC 15-5"] == (50.0, None, None)
    assert asked(tmp_path / "out", "--verify").exit_code == 0
    store_all("table4", tmp_path / "worse", lambda row: 3 if row == "Ours" else 5)
    result = asked(tmp_path / "worse", "--verify")
    assert result.exit_code == 1 and result.output.count("differs") == 2  # in the table, and below it
    assert "Only Step 1: differs" not in result.output


def test_expected_values_fit_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(monkeypatch, tmp_path / "items", {"table4": {"Our": {"VOC 15-5": (50.0, None, None)}}})
    with pytest.raises(UserError, match="has no row 'Our'"):
        scale.expected_of("quick")


def test_fresh_leaves_stored_results_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "results_folder", lambda: tmp_path / "results")
    small = dataclasses.replace(scale.load_scale("quick"), records=("kept",))
    monkeypatch.setattr(study, "load_scale", lambda name: small)
    store_all("table4", tmp_path / "results" / "kept")
    table = made("table4", tmp_path / "out")
    assert (table.sources.stored, table.sources.here, table.sources.missing) == (4, 0, 0)
    again = make_request(["table4"], "quick", [], None, tmp_path / "out", fresh=True)
    (table,) = reproduce(again, from_records=True, console=Console(file=io.StringIO()))
    assert (table.sources.stored, table.sources.here, table.sources.missing) == (0, 0, 4)


@pytest.mark.parametrize(
    ("items", "size", "words", "text"),
    [
        (["tabel1"], "quick", [], "Did you mean 'table1'"),
        (["table1"], "voc265", [], "Did you mean 'voc256'"),
        (["table1"], "paper", ["vok=data"], "takes ade20k=FOLDER voc=FOLDER"),
    ],
)
def test_bad_requests(tmp_path: Path, items: list[str], size: str, words: list[str], text: str) -> None:
    with pytest.raises(UserError, match=text):
        make_request(items, size, words, None, tmp_path)


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        make_request(["table1"], "quick", [], None, tmp_path / "file")


def test_data_that_nobody_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Add voc=FOLDER"):
        reproduce(make_request(["table1"], "paper", [], None, tmp_path), console=Console(file=io.StringIO()))


def test_data_that_are_not_there(tmp_path: Path) -> None:
    request = make_request(["table1"], "paper", ["voc=nowhere"], None, tmp_path)
    with pytest.raises(UserError, match="voc=nowhere: there is no such folder"):
        reproduce(request, console=Console(file=io.StringIO()))


def test_listing_tells_state_cost_and_needs(tmp_path: Path) -> None:
    (row,) = study.list_items(make_request(["table1"], "paper", [], None, tmp_path))
    assert row["done"] == 0 and row["runs"] == 79 and row["needs"] == "voc=FOLDER"
    assert row["cost"].endswith("h of an A100") and 20 < float(row["cost"].split()[0]) < 60


def first_steps_paid(rows: Iterable[tuple[str, str]]) -> int:
    """How many of these methods and settings train a step 0 at the paper's scale."""
    recipes = {
        Path(setting.replace(" ", "-")) / method: resolve(
            method, "voc", *setting.split(), ["train.norm=batch"]
        )
        for method, setting in rows
    }
    paid = image_passes(recipes)
    return sum(paid[place] > 8000 * recipe.train.epochs_of(0) for place, recipe in recipes.items())


def test_a_shared_step_0_is_paid_once() -> None:
    assert first_steps_paid([("finetune", "15-5 disjoint"), ("mib", "15-1 disjoint")]) == 1
    assert first_steps_paid([("finetune", "15-5 disjoint"), ("mib", "15-5 overlapped")]) == 2
    assert first_steps_paid([("finetune", "15-5 disjoint"), ("ewc", "15-5 disjoint")]) == 1
    assert first_steps_paid([("pi", "15-5 disjoint"), ("ewc", "15-5 disjoint")]) == 2
    assert first_steps_paid([("caf", "15-5 disjoint"), ("mib", "15-5 disjoint")]) == 2
    assert first_steps_paid([("joint", "15-5 disjoint"), ("mib", "15-5 disjoint")]) == 2


def test_rows_of_a_recipe_are_forms_of_one_method() -> None:
    file = Path(__file__).parents[2] / "recipes" / "paper-voc.yaml"
    assert named_rows(file) == {"caf-official": "caf", "caf-segue": "caf"}
    variants = {name: resolve(name, "voc", "15-5", file=file).method for name in ("caf", *named_rows(file))}
    assert [(each.name, each.params.variant) for each in variants.values()] == [
        ("caf", "paper"), ("caf", "official"), ("caf", "segue"),
    ]  # fmt: skip
    weights = {
        split: resolve("mib", "voc", split, file=file).method.params.kd_weight for split in ("15-5", "15-1")
    }
    assert weights == {"15-5": 10, "15-1": 100}


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("caf: {method.name: mib}", "is a method"),
        ("mine: {method.name: cav}", "no method 'cav'"),
        ("mine: {method.params.variant: paper}", "no method 'mine'"),
    ],
)
def test_wrong_rows_of_a_recipe(tmp_path: Path, section: str, text: str) -> None:
    (tmp_path / "r.yaml").write_text(f"methods:\n  {section}\n")
    with pytest.raises(UserError, match=text):
        named_rows(tmp_path / "r.yaml")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (Debian: texlive-latex-base)")
def test_latex_compiles(tmp_path: Path) -> None:
    store_all("table1", tmp_path)
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
    (tmp_path / "t.tex").write_text(head + paper_latex(made("table1", tmp_path)) + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)


@pytest.mark.results
def test_table_1_of_the_stored_results(tmp_path: Path) -> None:
    request = make_request(["table1"], "voc256", [], None, tmp_path)
    (table,) = reproduce(request, from_records=True, console=Console(file=io.StringIO()))
    assert table.broken() == [] and all(row.blocks_run >= 2 for row in table.rows)


def test_next_command_of_the_list_keeps_what_was_asked(tmp_path: Path) -> None:
    words = ["--scale", "paper", "--seeds", "2", "--out", str(tmp_path), "voc=some where"]
    said = CliRunner().invoke(cli.app, ["reproduce", *words])
    (command,) = [line for line in said.output.splitlines() if line.startswith("Next: ")]
    assert command.startswith(f"Next: {shlex.join(['segue', 'reproduce', 'table1', *words])} ")
