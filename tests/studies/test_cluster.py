"""Runs on a Ray cluster are the runs that they would be here; nodes that do not fit are found out first."""

import dataclasses
import io
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_runs import WORDS, assert_equal_runs, quiet_run, recipe

from segue.core.errors import UserError
from segue.core.progress import Display
from segue.studies import cluster, nodes
from segue.studies.jobs import Job, Workers, work_off
from segue.studies.pool import run_all
from segue.studies.submit import job_text, write_job

QUIET = Display(quiet=True)
PATIENCE = 400.0


class FakeExecutor:
    """Writes down what is started; jobs end in the order in which they came, some of them badly."""

    has_room = True

    def __init__(self, fails: tuple[str, ...] = (), first_step: Callable[[Path], None] = lambda _: None):
        self.fails, self.first_step = fails, first_step
        self.started, self.running, self.stopped = list[str](), list[Job](), False

    def start(self, job: Job) -> None:
        self.started.append(job.folder.name)
        self.running.append(job)

    def reports(self) -> Iterator[tuple[str, str, Any]]:
        if self.running:
            job = self.running.pop(0)
            name = str(job.folder)
            yield name, "begin", "on a node"
            yield name, "bar", ("step 0", 9, 3, "")
            self.first_step(job.folder)
            yield name, "end", f"{job.folder.name}: bad" if job.folder.name in self.fails else None

    def stop(self) -> None:
        self.stopped = True


def test_a_run_waits_for_the_step_that_it_takes_over(tmp_path: Path, monkeypatch) -> None:
    done = set[Path]()
    monkeypatch.setattr("segue.studies.jobs.has_first_step", done.__contains__)
    config = recipe("mib")
    jobs = [Job(config, tmp_path / "b", start=tmp_path / "a"), Job(config, tmp_path / "a")]
    jobs.append(Job(config, tmp_path / "c"))
    executor = FakeExecutor(first_step=done.add)
    work_off(jobs, executor, QUIET, keep_going=True)
    assert executor.started == ["a", "c", "b"]


def test_a_failed_run_ends_the_others_only_if_asked(tmp_path: Path) -> None:
    jobs = [Job(recipe("mib"), tmp_path / name) for name in "ab"]
    executor = FakeExecutor(fails=("a",))
    with pytest.raises(UserError, match=r"^a: bad$"):
        work_off(jobs, executor, QUIET, keep_going=True)
    assert executor.started == ["a", "b"] and not executor.running


@pytest.mark.parametrize(
    ("resources", "device", "gpus", "expected"),
    [
        ([{"CPU": 2}, {"CPU": 4}], "auto", 1, ("cpu", 1, 0)),
        ([{"CPU": 64, "GPU": 4}, {"CPU": 16}], "auto", 1, ("cuda", 16, 1)),
        ([{"CPU": 64, "GPU": 4}], "auto", 2, ("cuda", 32, 2)),
        ([{"CPU": 64, "GPU": 4}], "cpu", 1, ("cpu", 10, 0)),
        ([{"CPU": 8}, {}], "cuda", 1, None),
        ([{"CPU": 8, "GPU": 2}], "auto", 4, None),
        ([{"CPU": 8, "GPU": 2}], "cuda:1", 1, None),
        ([{}], "auto", 1, None),
    ],
)
def test_what_a_run_takes_of_a_node(resources, device, gpus, expected) -> None:
    if expected is None:
        with pytest.raises(UserError):
            nodes.need_of_a_run(resources, 6, device, gpus)
    else:
        assert nodes.need_of_a_run(resources, 6, device, gpus) == nodes.Need(*expected)


def test_nodes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    own = nodes.package_versions()
    with nodes.question(tmp_path / "out", [str(tmp_path)]) as asked:
        good = nodes.look_around(asked)
        nodes.check_finding(good, own, tmp_path)
        elsewhere = dataclasses.replace(asked, probe=tmp_path / "no" / "probe")
        with pytest.raises(UserError, match=f"{platform.node()} does not share the folder {tmp_path}"):
            nodes.check_finding(nodes.look_around(elsewhere), own, tmp_path)
        same_name = dataclasses.replace(asked, token="another disk")
        assert not nodes.look_around(same_name).shares
        poor = dataclasses.replace(asked, needed=(str(tmp_path / "voc"),))
        with pytest.raises(UserError, match=r"has no .*voc"):
            nodes.check_finding(nodes.look_around(poor), own, tmp_path)
    assert not list((tmp_path / "out").iterdir())
    older = dataclasses.replace(good, versions={**own, "torch": "1.0"})
    with pytest.raises(UserError, match=r"has torch 1\.0, but here it is torch"):
        nodes.check_finding(older, own, tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:10001", "somewhere"])
def test_a_cluster_that_cannot_be_reached(address: str, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("ray")
    jobs = [Job(recipe("mib"), tmp_path / "a", resume=True)]
    with pytest.raises(UserError, match=f"The Ray cluster '{address}'"):
        run_all(jobs, "cpu", QUIET, workers=Workers(cluster=address))


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"segue\[cluster\]"), cluster._connected("auto"):
        pass


def test_a_study_as_a_slurm_job(segue, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("compare", "--on", "scenes", "--split", "cat,dog/two words", "--cluster", "auto")
    code, text, _ = segue(*words, "--submit", "job.sh", "--seeds", "3")
    assert code == 0 and "sbatch job.sh" in text and not (tmp_path / "runs").exists()
    script = (tmp_path / "job.sh").read_text()
    command = "segue compare --on scenes --split 'cat,dog/two words' --seeds 3 --cluster \"$address\""
    assert script.splitlines()[-1] == command
    assert subprocess.run(["bash", "-n", "job.sh"], check=False).returncode == 0
    code, _, error = segue(*words, "--submit", "job.sh")
    assert code == 2 and "job.sh exists" in error
    assert "--submit" not in job_text(["tune", "--submit=x", "a=1"], tmp_path, tmp_path)


def test_a_job_names_folders_that_are_no_text_as_they_are(tmp_path: Path) -> None:
    write_job(tmp_path / "job.sh", ["compare", "data.root=caf\udce9"])
    assert b"data.root=caf\xe9" in (tmp_path / "job.sh").read_bytes()


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes with one CPU each, on this machine."""
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    made = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    made.small = small
    made.add_node(**small)
    try:
        yield made
    finally:
        made.shutdown()


def on(address: str, jobs: list[Job]) -> str:
    """Carry out jobs there; returns what was said."""
    said = io.StringIO()
    display = Display(Console(file=said, width=200))
    try:
        run_all(jobs, "cpu", display, keep_going=True, workers=Workers(cluster=address))
    except UserError as error:
        return f"{said.getvalue()}\nerror: {error}"
    return said.getvalue()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestRealCluster:
    def test_runs_are_those_of_this_machine_and_a_failing_one_harms_none(
        self, two_nodes: Any, finished: Callable[[str], Path], tmp_path: Path
    ) -> None:
        good = recipe("mib")
        bad = dataclasses.replace(good, model=dataclasses.replace(good.model, backbone="resnet1"))
        donor = Job(recipe("finetune"), tmp_path / "finetune", resume=True)
        jobs = [
            Job(good, tmp_path / "mib", resume=True, start=donor.folder),
            Job(bad, tmp_path / "bad", resume=True),
            donor,
        ]
        said = on(two_nodes.address, jobs)
        assert "error: bad: There is no backbone 'resnet1'" in said
        assert f"Step 0 is that of {donor.folder}" in said and "cluster of 2 nodes" in said
        assert_equal_runs(tmp_path / "finetune", finished("finetune"))
        quiet_run(good, tmp_path / "here" / "mib", start=finished("finetune"))
        assert_equal_runs(tmp_path / "mib", tmp_path / "here" / "mib")

    def test_runs_of_a_dead_node_go_on_elsewhere(self, two_nodes: Any, tmp_path: Path) -> None:
        config = recipe("finetune", "train.epochs=40")
        third = two_nodes.add_node(**two_nodes.small)
        jobs = [Job(config, tmp_path / name, resume=True) for name in "abc"]

        def kill() -> None:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if all(list(job.folder.glob("checkpoints/step0-*")) for job in jobs):
                    break
                time.sleep(0.1)
            two_nodes.remove_node(third, allow_graceful=False)

        thread = threading.Thread(target=kill)
        thread.start()
        said = on(two_nodes.address, jobs)
        thread.join()
        assert "is started again" in said and "error" not in said
        for job in jobs:
            quiet_run(config, tmp_path / "here" / job.folder.name)
            assert_equal_runs(job.folder, tmp_path / "here" / job.folder.name)

    def test_a_node_with_another_version_is_refused(self, two_nodes: Any, tmp_path: Path) -> None:
        package = tmp_path / "packages" / "timm-0.0.1.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: timm\nVersion: 0.0.1\n")
        path = f"{package.parent}:{os.environ.get('PYTHONPATH', '')}"
        two_nodes.add_node(**two_nodes.small, env_vars={"PYTHONPATH": path})
        said = on(two_nodes.address, [Job(recipe("mib"), tmp_path / "runs" / "mib", resume=True)])
        assert "has timm 0.0.1, but here it is timm" in said
        assert not list((tmp_path / "runs").iterdir())

    def test_ctrl_c_saves_and_the_same_command_goes_on(self, two_nodes: Any, tmp_path: Path) -> None:
        out = tmp_path / "out"
        words = ["compare", "--on", "scenes", "--split", "2-1", "--methods", "finetune,joint"]
        words += ["--out", str(out), "--cluster", two_nodes.address, *WORDS, "train.epochs=40"]
        start = lambda: subprocess.Popen(  # noqa: E731
            [sys.executable, "-m", "segue", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONWARNINGS": ""},
        )
        process, deadline = start(), time.monotonic() + PATIENCE
        while not list(out.glob("*/finetune-s0/checkpoints/step0-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130 and "Go on with" in said and "Traceback" not in said, said
        assert not list(out.glob("*/finetune-s0/steps/1.json"))
        process = start()
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and "no checkpoint" not in said, said
        folder = next(out.glob("*/finetune-s0"))
        quiet_run(recipe("finetune", "train.epochs=40", "train.seed=0"), tmp_path / "finetune-s0")
        assert_equal_runs(folder, tmp_path / "finetune-s0")
