"""Tuning: what is run and where, the choice as a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from short_runs import SHORT

from segue.core.errors import UserError
from segue.core.metrics import step_scores
from segue.core.records import read_run
from segue.engine.recipe import resolve
from segue.studies import pool as grid

HERE = ("--on", "scenes", "--split", "2-1")
FOLDER = "out/scenes-2-1-overlapped"
KD = "method.params.kd_weight"
GOOD = f"tune: {{mib: {{{KD}: [3, 1000]}}, finetune: {{optim.lr_next: [1.0e-9, 0.01]}}}}\n"
TINY = (*SHORT, "data.train=40")


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(f"eval: {{thin: 2}}\nmethods: {{mib: {{{KD}: 7}}}}\n{GOOD}")
    return path


def test_a_choice_that_cannot_be_read_is_said_before_training(segue, tmp_path, recipe, planned):
    choice = tmp_path / FOLDER / "choice.yaml"
    choice.parent.mkdir(parents=True)
    choice.write_text("{broken")
    code, _, error = segue("tune", recipe, *HERE, "--out", tmp_path / "out", *TINY)
    assert code == 2 and "choice.yaml" in error and planned == []


def test_a_score_that_does_not_choose_is_refused(segue, tmp_path, recipe, planned):
    code, _, error = segue("tune", recipe, *HERE, "--by", "new", "--out", tmp_path / "out", *TINY)
    assert code == 2 and "all or by hIoU" in " ".join(error.split()) and planned == []


def test_a_choice_of_another_split_has_to_be_there(segue, tmp_path, recipe, planned):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("mib: 3\n")
    for file, message in ((tmp_path / "none.yaml", "no such file"), (wrong, "one key and its value")):
        code, _, error = segue("tune", recipe, *HERE, "--used", file, "--out", tmp_path / "out", *TINY)
        assert code == 2 and message in " ".join(error.split()) and planned == []


def final_all(folder: Path) -> float:
    return step_scores(read_run(folder).steps[-1].matrix, 2).all


def test_values_are_run_once_and_the_best_is_written(segue, tmp_path, recipe, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page, choice = tmp_path / "page.md", tmp_path / FOLDER / "choice.yaml"
    words = ("tune", recipe, *HERE, "--out", tmp_path / "out", "--page", page, *TINY)
    words = (*words, f"model.weights={tmp_path / 'none.pth'}", "model.weights=null")
    code, text, error = segue(*words)
    assert code == 0 and error.startswith("Next: segue ")
    names = ["mib-3", "mib-1000", "finetune-1e-09", "finetune-0.01"]
    assert sorted(segue.runs) == sorted(f"{FOLDER}/{name}" for name in names)
    shown = text[text.index("Tuning: ") : text.index("Choice: ")].splitlines()
    assert "".join(shown).count("←") == 3 and max(map(len, shown)) <= 80, "two rows and the caption"
    rows = [line.split()[:2] for line in shown if line.startswith(("mib ", "finetune "))]
    assert rows == [
        ["mib", "kd_weight=3"],
        ["mib", "kd_weight=1000"],
        ["finetune", "lr_next=1e-09"],
        ["finetune", "lr_next=0.01"],
    ]
    scores = {name: final_all(tmp_path / FOLDER / name) for name in names}
    best = {
        "mib": {KD: 3.0 if scores["mib-3"] >= scores["mib-1000"] else 1000.0},
        "finetune": {"optim.lr_next": 1e-9 if scores[names[2]] >= scores[names[3]] else 0.01},
    }
    assert yaml.safe_load(choice.read_text()) == best
    by_hiou = yaml.safe_load(choice.with_name("choice-hiou.yaml").read_text())
    assert {name: list(keys) for name, keys in by_hiou.items()} == {n: list(k) for n, k in best.items()}
    assert "segue tune" in page.read_text() and " model.weights=FOLDER/none.pth " in page.read_text()
    assert choice.read_text() in page.read_text()
    assert (
        "`segue tune FOLDER/my.yaml --on scenes --split 2-1 --methods all --out FOLDER/out"
        in page.read_text()
    )
    assert str(tmp_path) not in page.read_text()

    # scored on held-out training images, all of them, as the recipe of each run says
    for name in names:
        run = read_run(tmp_path / FOLDER / name)
        assert run.recipe["scenario"]["hold_out"] == 0.2 and run.recipe["eval"]["thin"] == 1
        assert run.steps[0].seed == 0 and run.steps[-1].images["test"] != 6
    assert read_run(tmp_path / FOLDER / "mib-1000").recipe["method"]["params"]["kd_weight"] == 1000.0

    # what it costs to use it: on its own split nothing
    code, text, _ = segue(*words, "--used", choice)
    assert code == 0 and segue.runs == [] and "Price of values" in text
    assert "--used FOLDER/" in page.read_text() and segue(*words)[0] == 0

    # again: nothing is run, the same is written; one method alone leaves the other's choice as it is
    before, written = (page.read_text(), choice.read_text()), choice.stat()
    assert segue(*words)[0] == 0 and segue.runs == [] and (page.read_text(), choice.read_text()) == before
    assert choice.stat().st_ino == written.st_ino, "what is the same is not written again"
    assert segue(*words, "--methods", "finetune")[0] == 0 and segue.runs == []
    assert choice.read_text() == before[1] and "mib" not in page.read_text().split("do not edit")[1]

    # unless that was chosen from runs of another recipe, or these are no longer there
    stored = tmp_path / FOLDER / "mib-3" / "recipe.yaml"
    kept = stored.read_text()
    for other in (yaml.safe_dump(yaml.safe_load(kept) | {"optim": {"lr_next": 0.5}}), None):
        stored.write_text(other) if other else stored.unlink()
        choice.write_text(before[1])
        assert segue(*words, "--methods", "finetune")[0] == 0 and segue.runs == []
        assert yaml.safe_load(choice.read_text()) == {"finetune": best["finetune"]}
    stored.write_text(kept)
    choice.write_text(before[1])

    # the choice is a section `methods`
    mine = tmp_path / "tuned.yaml"
    mine.write_text(yaml.safe_dump({"methods": yaml.safe_load(choice.read_text())}))
    assert resolve("mib", "scenes", "2-1", file=mine).method.params.kd_weight == best["mib"][KD]


def test_only_methods_whose_runs_are_all_finished_have_a_choice(segue, tmp_path, recipe, monkeypatch):
    real = grid.run

    def diverging(config, folder, *rest) -> None:
        if folder.name == "mib-1000":
            raise UserError("The loss is not finite.")
        real(config, folder, *rest)

    page, choice = tmp_path / "page.md", tmp_path / FOLDER / "choice.yaml"
    words = ("tune", recipe, *HERE, "--out", tmp_path / "out", "--page", page, *TINY)
    with monkeypatch.context() as patch:
        patch.setattr(grid, "run", diverging)
        code, text, error = segue(*words)
        assert code == 2 and "mib-1000: The loss is not finite." in error and not page.exists()
        assert "cannot be trained" in " ".join(error.split())
        assert "mib-1000" in text
        assert list(yaml.safe_load(choice.read_text())) == ["finetune"]
        # an earlier choice goes when its method is asked for and not finished, or no longer has that value
        choice.write_text(f"mib: {{{KD}: 3.0}}\nfinetune: {{optim.lr_next: 5.0}}\n")
        assert segue(*words, "--methods", "mib")[0] == 2
        assert yaml.safe_load(choice.read_text()) == {}
    assert segue(*words)[0] == 0 and segue.runs == [f"{FOLDER}/mib-1000"] and page.is_file()
    assert list(yaml.safe_load(choice.read_text())) == ["mib", "finetune"]


def test_nothing_is_written_before_anything_is_finished(segue, tmp_path, recipe, planned):
    words = ("--methods", "mib", "--mode", "disjoint", "scenario.hold_out=0.3", "train.epochs=3")
    code, text, _ = segue("tune", *HERE, recipe, "--out", tmp_path / "out", *words)
    assert code == 0 and "Tuning" not in text and not list(tmp_path.rglob("choice.yaml"))
    folder = tmp_path / "out" / "scenes-2-1-disjoint"
    assert [job.folder for job in planned] == [folder / "mib-3", folder / "mib-1000"]
    assert [job.config.method.params.kd_weight for job in planned] == [3.0, 1000.0]
    assert {(job.config.scenario.hold_out, job.config.train.epochs) for job in planned} == {(0.3, 3)}
    assert planned[1].start == planned[0].folder, "step 0 is trained once"


def test_rows_of_the_recipe_are_tuned_by_their_own_names(segue, tmp_path, planned):
    recipe = tmp_path / "my.yaml"
    rows = f"methods: {{stiff: {{method.name: mib, {KD}: 7, method.start: random}}}}"
    recipe.write_text(f"{rows}\ntune: {{stiff: {{{KD}: [3, 30]}}}}\n")
    assert segue("tune", recipe, *HERE, "--out", tmp_path / "out", *TINY)[0] == 0
    assert [job.folder.name for job in planned] == ["stiff-3", "stiff-30"]
    asked = [(job.config.method.name, job.config.method.params.kd_weight) for job in planned]
    assert asked == [("mib", 3.0), ("mib", 30.0)]
    assert {job.config.method.start for job in planned} == {"random"}, "what the row says besides"


def test_share_that_the_recipe_holds_out_is_respected(segue, tmp_path, recipe, planned):
    good = recipe.read_text()
    recipe.write_text(f"scenario: {{hold_out: 0.4}}\n{good}")
    assert segue("tune", *HERE, recipe, "--out", tmp_path / "out")[0] == 0
    assert {job.config.scenario.hold_out for job in planned} == {0.4} and len(planned) == 4
    planned.clear()
    words = (*HERE, "--out", tmp_path / "out")
    assert segue("tune", recipe, *words, "scenario.hold_out=0.3")[0] == 0
    assert {job.config.scenario.hold_out for job in planned} == {0.3}, "words win"
    planned.clear()
    recipe.write_text(f"scenario: {{hold_out: 0}}\n{good}")
    code, _, error = segue("tune", recipe, *words)
    assert code == 2 and "then the test images would choose" in error
    recipe.write_text(good.replace("methods: {", "methods: {finetune: {scenario.hold_out: 0.4}, "))
    code, _, error = segue("tune", recipe, *words)
    message = "mib and finetune cannot stand in one table: scenario.hold_out: 0.2 -> 0.4."
    assert code == 2 and message in error and planned == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("", "has no section 'tune'"),
        ("tune: [mib]", "has no section 'tune'"),
        (f"tune: {{mob: {{{KD}: [1, 2]}}}}", "tune: mob: there is no such method. Did you mean 'mib'?"),
        ("tune: {mib: 3}", "tune: mib: should be one key and its values"),
        (f"tune: {{mib: {{{KD}: [1, 2], optim.lr_next: [1, 2]}}}}", "tune: mib: should be one key"),
        (f"tune: {{mib: {{{KD}: 3}}}}", f"tune: mib: {KD}: should be a list of two values or more"),
        (f"tune: {{mib: {{{KD}: [3]}}}}", f"tune: mib: {KD}: should be a list of two values or more"),
        (f"tune: {{mib: {{{KD}: [3, 1e-3]}}}}", "'1e-3' is not a number"),
        (f"tune: {{mib: {{{KD}: [3, .nan]}}}}", "nan is not a number"),
        (f"tune: {{mib: {{{KD}: [3, 3.0]}}}}", "[3, 3.0] are not all different"),
        ("tune: {mib: {train.epochs: [3, 4]}}", "tune: mib: 'train.epochs' cannot be tuned"),
        ("tune: {mib: {method.params.weight: [3, 4]}}", "mib with method.params.weight=3.0: Unknown key"),
        (
            GOOD.replace("[3, 1000]", "[3, 10, 30]"),
            "tune: finetune has 2 values and mib 3: for a fair choice every method has equally many.",
        ),
    ],
)
def test_wrong_sections_are_refused(segue, tmp_path, planned, section, message):
    recipe = tmp_path / "my.yaml"
    recipe.write_text(f"train: {{epochs: 1}}\n{section}\n")
    code, _, error = segue("tune", recipe, *HERE, "--out", tmp_path / "out")
    assert code == 2 and str(recipe) in error and message in error
    assert planned == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "mib,fintune"], "has no values for 'fintune'. Did you mean 'finetune'?"),
        (["--methods", ","], "Which methods? Name some of: mib, finetune, or all."),
        (["method.params.kd_weight=3"], "'method.params.kd_weight=3' belongs to one method"),
        (["train.seed=3"], "'train.seed' is not free here: every run has seed 0."),
        (["eval={thin: 2}"], "'eval.thin' is not free here"),
        (["optim.lr_next=3"], "'optim.lr_next' is not free here: it is tuned for finetune."),
        (["scenario.hold_out=0"], "then the test images would choose"),
        (["train.epoch=3"], "Unknown key 'train.epoch'. Did you mean 'train.epochs'?"),
        (["--page", "."], "is a folder"),
    ],
)
def test_wrong_words_are_refused(segue, tmp_path, recipe, planned, words, message):
    code, _, error = segue("tune", recipe, *HERE, *words, "--out", tmp_path / "out")
    assert code == 2 and message in error and planned == [] and not (tmp_path / "out").exists()


def test_recipe_has_to_be_named(segue, tmp_path, planned):
    code, _, error = segue("tune", *HERE, "--out", tmp_path / "out")
    assert code == 2 and "Which recipe?" in error and planned == []
