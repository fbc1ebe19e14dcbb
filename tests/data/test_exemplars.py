"""The memory after a step: balanced, reproducible, and made of what was there."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.scenario import Scenario, Step, make_scenario
from segue.data.exemplars import Exemplar, choose_exemplars, write_exemplars

CLASSES = ClassTable("made up", {i: f"class {i}" for i in range(1, 9)})
SIZES = (0, 1, 3, 8, 20, 10_000)


def index(rows: list[set[int]]) -> np.ndarray:
    """A class index from the ids of each image."""
    present = np.zeros((len(rows), 256), dtype=bool)
    for image, ids in enumerate(rows):
        present[image, list(ids)] = True
    return present


def made_up(seed: int, images: int = 60, most: int = 3) -> np.ndarray:
    """Images with background and 1 to `most` classes; low ids are frequent."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 9)
    rows = [
        {0, *generator.choice(8, generator.integers(1, most + 1), False, weights / weights.sum()) + 1}
        for _ in range(images)
    ]
    return index(rows)


def memories(
    scenario: Scenario, present: np.ndarray, size: int, seed: int = 0
) -> Iterator[tuple[Step, tuple[Exemplar, ...], list[int], tuple[Exemplar, ...]]]:
    """Step by step: the step, the memory before, the step's images and the memory after."""
    memory: tuple[Exemplar, ...] = ()
    for step in scenario:
        before, images = memory, scenario.select(step, present).tolist()
        memory = choose_exemplars(
            before, images, scenario[: step.index + 1], present, size, seed + step.index
        )
        yield step, before, images, memory


def labelled(exemplar: Exemplar, scenario: Scenario, present: np.ndarray) -> list[int]:
    return [c for c in scenario[exemplar.step].new if present[exemplar.image, c]]


def counts(memory: tuple[Exemplar, ...], scenario: Scenario, present: np.ndarray) -> Counter[int]:
    return Counter(c for exemplar in memory for c in labelled(exemplar, scenario, present))


@pytest.mark.parametrize("mode", ["overlapped", "disjoint", "sequential"])
@pytest.mark.parametrize("size", SIZES)
def test_only_what_was_there_and_no_image_twice(mode: str, size: int) -> None:
    for seed in range(10):
        scenario, present = make_scenario(CLASSES, "2-2", mode), made_up(seed)
        for step, before, images, after in memories(scenario, present, size, seed):
            assert {e for e in after if e.step < step.index} <= set(before), "what was not kept is gone"
            assert {e.image for e in after if e.step == step.index} <= set(images)
            assert all(e.step <= step.index and labelled(e, scenario, present) for e in after)
            assert len({e.image for e in after}) == len(after) <= size
            there = {e.image for e in before} | set(images)
            assert len(after) == min(size, len(there)), "full, unless there are too few"


@pytest.mark.parametrize("size", [6, 8, 9, 16, 19])
def test_classes_share_the_memory_evenly(size: int) -> None:
    """With one class per image and enough images the counts differ by one at most, at every step."""
    present = index([{1 + image % 8} for image in range(8 * 20)])
    scenario = make_scenario(CLASSES, "2-3")
    for step, _, _, after in memories(scenario, present, size):
        found = [counts(after, scenario, present)[c] for c in step.seen]
        assert sum(found) == len(after) == size
        assert max(found) - min(found) <= 1, f"step {step.index}: {found}"


def test_rare_classes_are_kept_beside_frequent_ones() -> None:
    present = index([{1}] * 100 + [{2}] * 2 + [{1, 2}] + [{3}] * 50)
    after = choose_exemplars((), range(153), (Step(0, (1, 2, 3)),), present, 12, seed=0)
    found = Counter(c for e in after for c in (1, 2, 3) if present[e.image, c])
    assert found[2] == 3 and found[1] + found[3] == 10 and abs(found[1] - found[3]) <= 1


def test_every_class_is_in_a_memory_with_room_for_all() -> None:
    for seed in range(20):
        scenario, present = make_scenario(CLASSES, "3-2", "overlapped"), made_up(seed, images=200)
        for step, _, _, after in memories(scenario, present, 8, seed):
            assert set(counts(after, scenario, present)) == set(step.seen)


def test_exemplar_counts_for_all_its_classes() -> None:
    """Image 0 serves both classes: a second image of the first comes only after it."""
    present = index([{1, 2}, {1}, {1}])
    steps = (Step(0, (2, 1)),)
    assert choose_exemplars((), range(3), steps, present, 1, seed=5) == (Exemplar(0, 0),)
    present = index([{1, 2}, {1}, {1}, {3}])
    for seed in range(10):
        chosen = choose_exemplars((), range(4), (Step(0, (2, 1, 3)),), present, 2, seed)
        assert chosen == (Exemplar(0, 0), Exemplar(3, 0))


def test_classes_of_other_steps_do_not_count() -> None:
    """Image 0 shows class 2 as well, but has no label of it at step 0."""
    present = index([{1, 2}, {2}])
    steps = (Step(0, (1,)), Step(1, (2,), (1,)))
    after = choose_exemplars((Exemplar(0, 0),), [1], steps, present, 2, seed=0)
    assert after == (Exemplar(0, 0), Exemplar(1, 1))
    assert choose_exemplars((Exemplar(0, 0),), [], steps, present, 2, seed=0) == (Exemplar(0, 0),)


def test_image_of_two_steps_is_kept_once() -> None:
    present = index([{1, 2}, {2}])
    steps = (Step(0, (1,)), Step(1, (2,), (1,)))
    for seed in range(10):  # class 1 is served first, and has no other image
        after = choose_exemplars((Exemplar(0, 0),), [0, 1], steps, present, 5, seed)
        assert after == (Exemplar(0, 0), Exemplar(1, 1))


def test_images_without_a_class_of_their_step_are_not_kept() -> None:
    """A manifest may list any image."""
    present = index([{0}, {0, 2}, {0, 1}])
    assert choose_exemplars((), range(3), (Step(0, (1,)),), present, 9, seed=0) == (Exemplar(2, 0),)


def test_same_seed_same_memory() -> None:
    scenario, present = make_scenario(CLASSES, "2-2"), made_up(0, images=200)
    state = np.random.get_state()[1].copy()
    runs = [[after for *_, after in memories(scenario, present, 12, seed)] for seed in (7, 7, 8)]
    assert runs[0] == runs[1] and runs[0] != runs[2]
    assert np.array_equal(np.random.get_state()[1], state), "the global generator is left alone"


def test_choice_is_random_not_the_first_ones() -> None:
    present = index([{1}] * 50)
    chosen = [choose_exemplars((), range(50), (Step(0, (1,)),), present, 5, seed) for seed in range(40)]
    assert {e.image for memory in chosen for e in memory} == set(range(50))


def test_file_names_images_and_steps(tmp_path: Path) -> None:
    write_exemplars(tmp_path, 3, (Exemplar(1, 0), Exemplar(0, 2)), ("a.png", "b.png"))
    assert json.loads((tmp_path / "memory" / "3.json").read_text()) == {
        "format": "segue-memory-1",
        "step": 3,
        "images": [{"key": "b.png", "step": 0}, {"key": "a.png", "step": 2}],
    }
