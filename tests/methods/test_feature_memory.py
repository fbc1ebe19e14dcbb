"""The memory of features: what it keeps, that this does not depend on how images are shared, its loss."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.scenario import Step
from segue.data.batches import Batch, RankSlice
from segue.methods._stores import EMPTY, places, rehearsal_loss
from segue.methods._stores.features import FeatureMemory

CHANNELS, SIZE = 3, 4
FIRST = Step(0, (1, 2, 3))
NEXT = Step(1, (4, 5), (1, 2, 3))
SHORT, SECOND = Step(0, (1,)), Step(1, (2, 3), (1,))


class Classifier(nn.Conv2d):
    """As much of a classifier as a store needs."""

    def at_places(self, h_MF: Tensor) -> Tensor:
        return self(h_MF[:, :, None, None])[:, :, 0, 0]


def h_of(images: Tensor) -> Tensor:
    """A map that tells every place of every image: the image's number, its row, its column."""
    number = images[:, :1, :SIZE, :SIZE].float()
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    return torch.cat([number, *(each.expand_as(number).float() for each in (rows, columns))], dim=1)


def batches(labels: Tensor, share: RankSlice | None = None, size: int = 4) -> list[Batch]:
    found = []
    for first in range(0, len(labels), size):
        numbers = torch.arange(len(labels))[first : first + size]
        mine = numbers if share is None else numbers[share.places(len(numbers))[0]]
        images = mine[:, None, None, None].expand(-1, 3, 2 * SIZE, 2 * SIZE).to(torch.uint8)
        full = labels[mine].repeat_interleave(2, 1).repeat_interleave(2, 2)
        found.append(Batch(images, full, [], rank_slice=share or RankSlice(), global_size=len(numbers)))
    return found


def drawn(images: int = 10) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 4, (images, SIZE, SIZE), generator=generator)


def test_first_step_keeps_classes_and_background_with_their_labels() -> None:
    labels, memory = drawn(), FeatureMemory(CHANNELS, per_class=5, background=7)
    labels[labels == 3] = EMPTY  # the last class is nowhere
    memory.grow(FIRST)
    memory.collect(h_of, batches(labels), FIRST)
    counts = {value: int((memory.labels == value).sum()) for value in (0, 1, 2, 3, EMPTY)}
    assert counts == {0: 7, 1: 5, 2: 5, 3: 0, EMPTY: 5}
    kept = memory.labels != EMPTY
    image, row, column = memory.features[kept].long().T
    assert torch.equal(labels[image, row, column], memory.labels[kept])
    assert len(memory.features[kept].unique(dim=0)) == 17 and len(image.unique()) > 4, "places of many images"


def test_later_steps_add_their_own_classes_and_leave_the_rest() -> None:
    memory = FeatureMemory(CHANNELS, per_class=5, background=7)
    memory.grow(SHORT)
    memory.collect(h_of, batches(drawn()), SHORT)
    before = memory.features.clone(), memory.labels.clone()
    memory.grow(SECOND)
    memory.collect(h_of, batches(drawn()), SECOND)
    assert len(memory.labels) == 7 + 5 + 10 and memory.labels[12:].tolist() == [2] * 5 + [3] * 5
    assert torch.equal(memory.features[:12], before[0]) and torch.equal(memory.labels[:12], before[1])


@pytest.mark.parametrize("processes", [2, 3])
def test_choice_does_not_depend_on_how_images_are_shared(processes: int, monkeypatch) -> None:
    def collected(share: RankSlice | None) -> FeatureMemory:
        memory = FeatureMemory(CHANNELS, per_class=5, background=7)
        memory.grow(FIRST)
        memory.collect(h_of, batches(drawn(), share), FIRST)
        return memory

    whole = collected(None)
    here, parts = threading.local(), [None] * processes
    barrier = threading.Barrier(processes, timeout=300)

    def summed(values: Tensor) -> Tensor:
        parts[here.process] = values
        barrier.wait()
        total = torch.stack(parts).sum(0)
        barrier.wait()  # nobody begins the next sum before all have this one
        return total

    def one(process: int) -> FeatureMemory:
        here.process = process
        return collected(RankSlice(process, processes))

    monkeypatch.setattr(places, "this_process", lambda: (here.process, processes))
    monkeypatch.setattr(places, "sum_over_processes", summed)
    with ThreadPoolExecutor(processes) as pool:
        memories = list(pool.map(one, range(processes)))
    for memory in memories:
        assert torch.equal(memory.labels, whole.labels) and torch.equal(memory.features, whole.features)


def test_collecting_again_gives_the_same() -> None:
    found = []
    for _ in range(2):
        memory = FeatureMemory(CHANNELS, 5, 7)
        memory.grow(FIRST)
        memory.collect(h_of, batches(drawn()), FIRST)
        found.append(memory.state_dict())
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def loss(memory: FeatureMemory, classifier: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    return rehearsal_loss(memory.draw(torch.Generator()), memory.per_class, classifier, logits, labels, NEXT)


def filled(missing: int = 3) -> FeatureMemory:
    """A memory of step 0, which has seen no pixel of one class, with room for step 1."""
    memory = FeatureMemory(CHANNELS, 5, 7)
    memory.grow(FIRST)
    labels = drawn()
    labels[labels == missing] = EMPTY
    memory.collect(h_of, batches(labels), FIRST)
    memory.grow(NEXT)
    return memory


def test_loss_is_the_cross_entropy_of_what_is_kept_and_of_new_classes_in_the_batch() -> None:
    memory, classifier = filled(), Classifier(CHANNELS, 6, 1)
    h = torch.randn(3, CHANNELS, SIZE, SIZE, requires_grad=True)
    labels = torch.tensor([0, 1, 4, 255]).repeat(3, SIZE, 1)
    labels[1] = labels[1].where(labels[1] != 4, 5)
    labels[1, 0] = 4
    labels[2] = 0  # no new class
    found = loss(memory, classifier, classifier(h), labels)

    def entropy(features: Tensor, labels: Tensor) -> Tensor:
        logits = features @ classifier.weight[:, :, 0, 0].T + classifier.bias
        return F.cross_entropy(logits, labels)

    kept = memory.labels != EMPTY
    assert kept.sum() == 17
    places = h.detach().permute(0, 2, 3, 1)
    new = [
        entropy(places[i][chosen], labels[i][chosen]) for i in (0, 1) if (chosen := labels[i] // 2 == 2).any()
    ]
    expected = (17 * entropy(memory.features[kept], memory.labels[kept]) + 2 * 5 * sum(new) / 3) / (
        17 + 2 * 5
    )
    torch.testing.assert_close(found, expected)
    found.backward()
    assert classifier.weight.grad.abs().sum() > 0
    moved = h.grad.abs().sum(1) > 0
    assert torch.equal(moved, labels // 2 == 2), "new classes teach the features too, and nothing else does"


def test_loss_of_a_batch_is_the_mean_over_its_images() -> None:
    memory, classifier = filled(), Classifier(CHANNELS, 6, 1)
    logits, labels = torch.randn(4, 6, SIZE, SIZE), torch.randint(0, 6, (4, 8, 8))
    whole = loss(memory, classifier, logits, labels)
    pairs = zip(logits.split(1), labels.split(1), strict=True)
    parts = [loss(memory, classifier, *each) for each in pairs]
    torch.testing.assert_close(whole, torch.stack(parts).mean())


def test_new_classes_alone_are_not_rehearsed() -> None:
    """A network from elsewhere has left no features: nothing says where its new classes are not."""
    memory, classifier = FeatureMemory(CHANNELS, 5, 7), Classifier(CHANNELS, 6, 1)
    memory.grow(FIRST)
    memory.grow(NEXT)
    h = torch.randn(3, CHANNELS, SIZE, SIZE)
    found = loss(memory, classifier, classifier(h), torch.full((3, SIZE, SIZE), 4))
    found.backward()
    assert found == 0 and not classifier.weight.grad.any()


def test_loss_of_nothing_is_nothing() -> None:
    memory = FeatureMemory(CHANNELS, 0, 0)
    memory.grow(FIRST)
    memory.grow(NEXT)
    given = torch.randn(2, 6, SIZE, SIZE), torch.full((2, 8, 8), 4)
    assert loss(memory, Classifier(CHANNELS, 6, 1), *given) == 0
