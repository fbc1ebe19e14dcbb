"""A plan: image counts with and without the data, FLOPs, memory and hours against what is known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import plan as bench
from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.engine.data import build_data
from segue.engine.recipe import resolve
from segue.plan.gpus import GPUS, Gpu, find_gpu
from segue.plan.needs import Footprint, Plan, StepPlan
from segue.plan.plan import count_images, make_plan

QUIET = Display(quiet=True)
TINY = ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=32")
ONE = Footprint(
    parameters=50, trainable=40, teacher_parameters=50, weights=200, gradients=100, momentum=100, teacher=200,
    kept=10, image=1000, shared=50, update=100, student_flops=10**12, teacher_flops=3 * 10**11,
    method_flops=2 * 10**11,
)  # fmt: skip


def recipe(method: str, on: str, split: str, *words: str) -> RunConfig:
    return resolve(method, on, split, overrides=words)


def a_plan(image: int = 1000, accumulate: int = 1, processes: int = 1) -> Plan:
    one = replace(ONE, image=image)
    first = replace(one, teacher=0, teacher_flops=0, method_flops=0)
    steps = (StepPlan(0, 16, 96, 40, 24, first), StepPlan(1, 21, 48, 20, 24, one))
    return Plan("t", "n", "i", "fp32", 512, accumulate, False, processes, steps, 210, 310, 2, 5, 200)


def test_sums() -> None:
    plan = a_plan()
    assert plan.flops == 40 * 24 * 10**12 + 20 * 24 * 15 * 10**11
    assert plan.peak() == 200 + 100 + 100 + 200 + 10 + 50 + 24 * 1000
    assert plan.largest.index == 1 and plan.peak(accumulate=5) == 610 + 50 + 5 * 1000
    assert plan.disk == 210 + 3 * 310 + 5 and plan.kept_finished == 2
    slow = Gpu("slow", 1, fp32=1.0, tf32=None, half=8.0)
    assert plan.hours(plan.steps[0], slow, 0.5) == pytest.approx(40 * 24 / 0.5 / 3600)


def test_processes_share_the_batch_and_the_work() -> None:
    alone, four = a_plan(), a_plan(processes=4)
    assert four.peak() == 610 + 100 + 50 + 6 * 1000, "with copies of the gradients"
    gpu = GPUS["t4"]
    assert four.hours(four.steps[0], gpu, 0.3) == pytest.approx(alone.hours(alone.steps[0], gpu, 0.3) / 4)


def test_remedy_is_the_smallest_accumulate_that_fits_and_leaves_no_single_image() -> None:
    card = Gpu("card", 16, 1.0, None, 1.0)
    gib = 2**30
    assert a_plan(image=gib // 2).fits(card)
    assert a_plan(image=gib).remedy(card) == 2, "12 images of 1 GiB"
    assert a_plan(image=4 * gib).remedy(card) == 8, "3 images of 4 GiB"
    assert a_plan(image=8 * gib).remedy(card) is None, "not even two images"


def test_peaks_of_a_gpu() -> None:
    t4, a100 = find_gpu("T4"), find_gpu("NVIDIA A100 80GB")
    assert (a100.name, find_gpu("a100").name, find_gpu("RTX 3090").name) == ("a100-80", "a100-40", "rtx3090")
    assert t4.peak("fp32") == (8.1e12, "fp32") and t4.peak("fp16") == (65e12, "fp16")
    assert t4.peak("bf16")[1] == "fp32" and a100.peak("bf16") == (312e12, "bf16")
    assert a100.peak("fp32") == (156e12, "tf32")
    with pytest.raises(UserError, match=r"The GPU 'rtx3099' is not known\. Did you mean 'rtx3090'\?"):
        find_gpu("rtx3099")


def test_images_of_data_at_hand_are_those_of_the_engine() -> None:
    config = recipe(
        "finetune", "scenes", "5-2", "data.size=32", "data.train=60", "data.test=20", "train.crop=32"
    )
    counts = count_images(config, None, QUIET)
    assert counts.images == tuple(map(len, build_data(config, QUIET).train_images))
    assert "counted in the data" in counts.source
    assert sum(count_images(config, 900, QUIET).images) == 900


@pytest.mark.parametrize(
    ("on", "split", "images"),
    [
        ("voc", "15-5", (9568, 2145)),
        ("voc", "12-8", (6349, 4233)),
        ("ade20k", "100-10", (13452, 1130, 1200, 1366, 1550, 1498)),
        ("ade20k", "100-50b", (10375, 9821)),
        ("cityscapes", "14-1", (2192, 157, 157, 157, 157, 157)),
    ],
)
def test_without_the_data_the_published_numbers_count(on, split, images) -> None:
    config = recipe("caf", on, split, "data.root=not/here")
    counts = count_images(config, None, QUIET)
    assert counts.images == images and "as published" in counts.source


def test_manifest_says_its_images_without_the_data(tmp_path: Path) -> None:
    data = build_data(recipe("mib", "scenes", "5-2", "data.size=32", "data.train=60", "train.crop=32"), QUIET)
    document = data.manifest()
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(document))
    words = ("data.size=32", "data.train=60", "train.crop=32", f"scenario.manifest={file}")
    counts = count_images(resolve("mib", overrides=words), None, QUIET)
    assert counts.images == tuple(map(len, data.train_images))


def test_own_folder_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.root=FOLDER"):
        count_images(recipe("caf", "folder", "1-1"), 100, QUIET)


def test_plan_of_a_tiny_run() -> None:
    config = recipe("caf", "voc", "15-5", *TINY, "train.batch_size=8", "train.epochs=2")
    plan = make_plan(config, 1, 100, QUIET)
    assert [(s.channels, s.images, s.iterations, s.batch) for s in plan.steps] == [
        (16, 75, 18, 8),
        (21, 25, 6, 8),
    ]
    first, last = (step.footprint for step in plan.steps)
    assert first.teacher == first.teacher_flops == 0 < last.teacher_flops < last.student_flops
    assert last.student_flops == pytest.approx(3 * last.teacher_flops, rel=0.15), (
        "two passes back, one forward"
    )
    assert last.method_flops > 0 and last.weights > last.teacher, "fusion is the student's only"
    assert last.gradients == last.momentum == 4 * last.trainable <= last.weights
    assert plan.inside_bytes - plan.finished_bytes == last.momentum
    with pytest.raises(UserError, match="9 processes cannot share the batches of step 0"):
        make_plan(config, 9, 100, QUIET)


def test_steps_without_iterations_cost_none() -> None:
    plan = make_plan(recipe("acil", "voc", "15-5", *TINY, "train.batch_size=8"), 1, 100, QUIET)
    first, later = plan.steps
    assert first.iterations > 0 < first.flops and later.images > 0
    assert later.iterations == later.flops == plan.hours(later, GPUS["t4"], 0.3) == 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_needs_less_for_an_image(precision: str) -> None:
    words = (*TINY, "train.batch_size=8")
    whole, half = (
        make_plan(recipe("mib", "voc", "15-5", *words, *more), 1, 100, QUIET).steps[-1].footprint
        for more in ((), (f"train.precision={precision}",))
    )
    assert half.image < 0.9 * whole.image and half.weights == whole.weights and half.flops == whole.flops


@pytest.mark.slow
def test_checkpointing_saves_memory_and_costs_flops() -> None:
    words = ("model.backbone=mobilenetv2_050", "model.head=lite", "train.crop=128")
    plain, saving = (
        make_plan(recipe("finetune", "voc", "15-5", *words, *more), 1, 100, QUIET).steps[-1].footprint
        for more in ((), ("train.checkpointing=true",))
    )
    assert saving.image < 0.8 * plain.image and saving.flops > 1.1 * plain.flops


def test_memory_of_a_memory() -> None:
    """Exemplars take half of the places: twice the iterations, in later steps."""
    words = (*TINY, "train.batch_size=8", "train.epochs=2")
    plain = make_plan(recipe("ssul", "voc", "15-5", *words), 1, 100, QUIET)
    config = recipe("ssul", "voc", "15-5", *words, "method.params.memory.size=20")
    mixed = make_plan(config, 1, 100, QUIET)
    assert [s.iterations for s in plain.steps] == [18, 6] and [s.iterations for s in mixed.steps] == [18, 12]


def test_bench_compares_and_stores(tmp_path: Path, monkeypatch) -> None:
    """In this process: another takes seconds to start, but this one has already grown."""
    monkeypatch.setattr(bench, "in_own_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(bench, "measured_peak", lambda case, device: 5 * 2**20)
    cases = {"tiny": bench.Case("mib", "voc", "15-5", (*TINY, "train.batch_size=2"))}
    found = bench.bench_plan(2, "cpu", tmp_path / "bench-plan.json", cases=cases).cases["tiny"]
    assert found.rounds == (5, 5) and found.ratio == found.planned / 5 > 0.1
    stored = json.loads((tmp_path / "bench-plan.json").read_text())
    assert stored["format"] == "segue-bench-plan-1" and stored["cases"]["tiny"]["planned"] == found.planned
    assert stored["cases"]["tiny"]["command"].startswith(
        "segue plan mib --on voc --split 15-5 model.backbone"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MobileNet-v2, 128 px, batch 16", "ResNet-50, 256 px, batch 4"])
def test_planned_memory_is_within_a_fifth_of_what_training_takes(name: str) -> None:
    found = bench.bench_plan(1, "cpu", cases={name: bench.CASES[name]})
    assert 0.8 < found.cases[name].ratio < 1.2


def test_stored_comparison_is_within_a_fifth() -> None:
    stored = json.loads((Path(__file__).parents[2] / "results" / "bench-plan.json").read_text())
    assert set(stored["cases"]) == set(bench.CASES)
    for case in stored["cases"].values():
        assert 0.8 < case["planned"] / case["measured"] < 1.2
