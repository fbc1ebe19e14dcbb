"""Comparisons train a step 0 once: who takes it from whom, in which order, and what happens if it fails."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from short_runs import SHORT

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import read_run
from segue.engine import train
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.recipe import resolve
from segue.engine.run import run
from segue.studies import first_steps, missing
from segue.studies import pool as grid
from segue.studies.jobs import Job, _Work
from segue.studies.pool import run_all

QUIET = Display(quiet=True)


def short(method: str | Path, *words: str, split: str = "2-1") -> RunConfig:
    return resolve(str(method), "scenes", split, overrides=[*SHORT, *words])


def planned(plan: dict[Path, RunConfig], out: Path) -> dict[str, str | None]:
    """Which run each takes its step 0 from, in the order in which they are done."""
    jobs = first_steps.jobs_sharing_first_steps(plan, out, first_steps.Manifests(QUIET))
    return {job.folder.name: job.start and job.start.name for job in jobs}


def places(out: Path, *methods: str) -> dict[Path, RunConfig]:
    return {out / method: short(method) for method in methods}


def weights(folder: Path, step: int) -> dict:
    return load_tree(CheckpointStore(folder).path(step))["method"]


def test_who_takes_it_from_whom(tmp_path: Path) -> None:
    plan = places(tmp_path, "finetune", "mib", "ewc", "caf", "pi", "joint")
    assert planned(plan, tmp_path) == {
        "ewc": None, "pi": None, "finetune": "ewc", "mib": "ewc", "caf": None, "joint": None,
    }  # fmt: skip
    assert list(planned(places(tmp_path, "mib", "finetune"), tmp_path).items()) == [
        ("mib", None),
        ("finetune", "mib"),
    ]


def test_who_replaces_the_trained_model_takes_and_does_not_give(tmp_path: Path) -> None:
    run(short("acil"), tmp_path / "acil-before", display=QUIET)
    plan = places(tmp_path, "acil", "mib")
    plan[tmp_path / "other"] = short("acil", "method.params.ridge=3")
    assert planned(plan, tmp_path) == {"acil": "acil-before", "mib": None, "other": "mib"}
    assert planned(plan, tmp_path / "elsewhere") == {"acil": None, "mib": None, "other": "mib"}


def test_seeds_and_first_steps_of_their_own_share_nothing(tmp_path: Path) -> None:
    plan = {tmp_path / f"mib-{seed}": short("mib", f"train.seed={seed}") for seed in (0, 1)}
    plan[tmp_path / "slow"] = short("mib", "train.seed=0", "optim.lr_first=0.001")
    plan[tmp_path / "sequel"] = short("plop", "train.seed=1", "optim.lr_next=0.001")
    assert planned(plan, tmp_path) == {"mib-0": None, "mib-1": None, "slow": None, "sequel": "mib-1"}


def test_batches_of_every_method_are_checked(tmp_path: Path) -> None:
    plan = {tmp_path / "good": short("finetune"), tmp_path / "bad": short("mib", "train.accumulate=8")}
    with pytest.raises(UserError, match=r"train\.accumulate=8 leaves a micro-batch of one image"):
        planned(plan, tmp_path)


def test_runs_that_are_there_give_theirs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(short("finetune"), out / "other split" / "old", display=QUIET)
    shutil.copytree(out / "other split" / "old", tmp_path / "elsewhere")
    plan = places(out / "here", "mib", "ewc")
    assert planned(plan, out) == {"ewc": None, "mib": "old"}
    assert planned(plan, out / "here") == {"ewc": None, "mib": "ewc"}, "only runs under the folder count"
    # a run that is to go on needs no other's, and gives its own
    shutil.copytree(out / "other split" / "old", out / "here" / "finetune")
    (out / "here" / "finetune" / "steps" / "1.json").unlink()
    plan = places(out / "here", "finetune", "mib")
    assert planned(plan, out / "here") == {"finetune": None, "mib": "finetune"}


def test_what_cannot_be_understood_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(short("finetune"), tmp_path / "whole", display=QUIET)
    for number, text in enumerate(
        (
            "",
            "a: [",
            "method: mib\n",
            "method: {name: nowhere.py}\n",
            "- 1\n",
            "method: {name: mib}\n",
            "\0\xff",
        )
    ):
        shutil.copytree(tmp_path / "whole", tmp_path / f"{number}")
        (tmp_path / f"{number}" / "recipe.yaml").write_text(text, encoding="latin-1")
    for name in ("no manifest", "half manifest", "damaged", "edited"):
        shutil.copytree(tmp_path / "whole", tmp_path / name)
    (tmp_path / "no manifest" / "scenario.json").unlink()
    (tmp_path / "half manifest" / "scenario.json").write_text("{}")
    damaged = CheckpointStore(tmp_path / "damaged").path(0)
    damaged.write_bytes(damaged.read_bytes()[:-5])
    edited = tmp_path / "edited" / "recipe.yaml"
    edited.write_text(edited.read_text().replace("lr_next: 0.02", "lr_next: 0.03"))
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('imported')")
    (tmp_path / "0" / "recipe.yaml").write_text(f"method: {{name: {trap}}}\n")
    monkeypatch.setattr(first_steps.plugins, "_import_file", lambda path: pytest.fail(f"{path} is imported"))
    (tmp_path / "whole").rename(tmp_path / "z")
    assert planned(places(tmp_path / "new", "mib"), tmp_path) == {"mib": "z"}
    shutil.rmtree(tmp_path / "z")
    assert planned(places(tmp_path / "new", "mib"), tmp_path) == {"mib": None}


def test_run_folders_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(short("finetune"), tmp_path / "a", display=QUIET)
    shutil.copytree(tmp_path / "a", tmp_path / "a" / "samples" / "inside")
    assert list(first_steps.runs_with_first_step(tmp_path, ())) == [tmp_path / "a"]
    assert first_steps.runs_with_first_step(tmp_path / "nowhere", ()) == {}


def test_a_comparison_trains_it_once(segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from segue.engine import run as run_module

    trained, train = [], run_module._train
    monkeypatch.setattr(
        run_module,
        "_train",
        lambda method, data, step, site, *rest: (
            trained.append((site.folder.name, step.index)) or train(method, data, step, site, *rest)
        ),
    )
    words = ("compare", "--on", "scenes", "--out", tmp_path / "out", *SHORT)
    code, _, error = segue(*words, "--split", "1-1", "--methods", "mib,ewc,finetune")
    assert code == 0 and error.startswith("Next: segue ")
    assert [name for name, step in trained if step == 0] == ["ewc-s0"]
    assert sorted(trained) == sorted(
        [("ewc-s0", 0), *((f"{name}-s0", step) for name in ("mib", "ewc", "finetune") for step in (1, 2))]
    )
    # another split that begins with the same classes: nothing is left to be trained of step 0
    trained.clear()
    config, folder = short("mib", "train.seed=0", split="1-2"), tmp_path / "out" / "scenes-1-2" / "mib-s0"
    assert missing.run_missing({folder: config}, tmp_path / "out", "cpu", QUIET) is None
    assert trained == [("mib-s0", 1)]
    run(config, tmp_path / "alone", display=QUIET)
    assert read_run(folder).steps[-1].confusion == read_run(tmp_path / "alone").steps[-1].confusion


# Side by side


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch, prepared_processes: None) -> None:
    monkeypatch.setattr(grid, "available_cores", lambda: 2)


def test_jobs_wait_for_the_one_that_trains_it(two_cores, tmp_path: Path) -> None:
    donor, names = tmp_path / "finetune", ("mib", "plop")
    jobs = [Job(short(name), tmp_path / name, start=donor) for name in names]
    jobs.append(Job(short("finetune"), donor))  # also if it stands last
    run_all(jobs, "cpu", QUIET)
    for name in names:
        log = (tmp_path / name / "log.jsonl").read_text()
        assert '"step": 1' in log and '"step": 0' not in log, "step 0 was taken"
        model = {key: value for key, value in weights(tmp_path / name, 0).items() if key.startswith("model.")}
        assert all(value.equal(weights(donor, 0)[key]) for key, value in model.items())
    assert '"step": 0' in (donor / "log.jsonl").read_text()


def failing_donor(tmp_path: Path) -> list[Job]:
    good = short("mib")
    bad = dataclasses.replace(good, model=dataclasses.replace(good.model, backbone="resnet1"))
    start = tmp_path / "bad"
    return [Job(bad, start), Job(good, tmp_path / "mib", start=start)]


@pytest.mark.parametrize("cores", [1, 2])
def test_if_it_fails_the_others_train_it_themselves(
    cores: int, tmp_path: Path, monkeypatch, prepared_processes: None
) -> None:
    monkeypatch.setattr(grid, "available_cores", lambda: cores)
    with pytest.raises(UserError, match=r"^bad: There is no backbone 'resnet1'"):
        run_all(failing_donor(tmp_path), "cpu", QUIET, keep_going=True)
    assert read_run(tmp_path / "mib").finished
    assert '"step": 0' in (tmp_path / "mib" / "log.jsonl").read_text()


class Waiting(_Work):
    """Without an executor."""

    def __init__(self, waiting: list[Job], running: list[Path]) -> None:
        self.waiting, self.running = waiting, set(map(str, running))


def test_who_must_wait(tmp_path: Path) -> None:
    config, donor = short("mib"), tmp_path / "donor"
    job, giver = Job(config, tmp_path / "a", start=donor), Job(config, donor)
    assert Waiting([job, giver], [])._must_wait(job) and Waiting([job], [donor])._must_wait(job)
    assert not Waiting([job], [])._must_wait(job), "it has ended without a step 0"
    itself = Job(config, donor, start=donor)
    assert not Waiting([itself], [])._must_wait(itself) and not Waiting([giver], [])._must_wait(giver)
    CheckpointStore(donor).save_finished(0, {"method": {}})
    assert not Waiting([job], [donor])._must_wait(job), "it has it already"
    assert job.sound_start is None, "but no recipe: it is not to be trusted"


def test_donor_that_died_in_its_first_step_leaves_no_lines_of_it(
    segue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run trains a step 0 of its own; the donor takes it over when the command is repeated."""
    words = ("compare", "--on", "scenes", "--split", "2-1", "--methods", "mib,finetune", *SHORT)
    words = (
        *words,
        "train.epochs=4",
        "train.log_every=1",
        "train.save_seconds=99",
        "--out",
        tmp_path / "out",
    )
    donor, other = (tmp_path / "out" / "scenes-2-1-overlapped" / f"{name}-s0" for name in ("finetune", "mib"))
    done, update = [], train.update

    def dies(session, *rest):
        done.append(session)
        if len(done) == 4:
            raise UserError("killed")
        return update(session, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(train, "update", dies)
        code, _, err = segue(*words)
    assert code == 2 and "killed" in err
    assert len(steps_logged(donor)) == 3 and set(steps_logged(other)) == {0, 1}
    code, _, err = segue(*words)
    assert code == 0, err
    assert steps_logged(donor) == [step for step in steps_logged(other) if step == 1], "step 0 was taken over"
    assert read_run(donor).finished


def steps_logged(folder: Path) -> list[int]:
    """The step of every line of a run's log."""
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
