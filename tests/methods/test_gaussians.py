"""Gaussians instead of features: what they hold of a class, and what is drawn from them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.methods._stores import bytes_per_class
from segue.methods._stores.gaussians import Gaussians
from segue.methods._stores.mixtures import Mixtures

FIRST, NEXT = Step(0, (1, 2)), Step(1, (3,), (1, 2))


def features(images: Tensor) -> Tensor:
    return images


def batches(first: int, last: int, count: int = 4) -> list[Batch]:
    generator = torch.Generator().manual_seed(last)
    made = []
    for _ in range(count):
        images = torch.randn(2, 3, 4, 4, generator=generator) + 1.0
        labels = torch.randint(first, last, (2, 4, 4), generator=generator)
        made.append(Batch(images, labels, ["a", "b"]))
    return made


def collected() -> tuple[Gaussians, list[Batch]]:
    store, seen = Gaussians(3, per_class=5000), batches(0, 3)
    store.grow(FIRST)
    store.collect(features, seen, FIRST)
    return store, seen


def test_a_class_is_a_direction_its_scatter_and_a_length() -> None:
    store, seen = collected()
    for label in range(3):
        places = torch.cat([b.images.movedim(1, -1)[b.labels == label] for b in seen])
        lengths = places.norm(dim=1)
        unit = places / lengths[:, None]
        direction = F.normalize(unit.sum(0), dim=0)
        torch.testing.assert_close(store.directions[label], direction)
        torch.testing.assert_close(store.scatters[label], (unit - direction).square().mean(0).sqrt())
        torch.testing.assert_close(store.lengths[label], lengths.mean())
        torch.testing.assert_close(store.length_scatters[label], lengths.std(correction=0))
        assert store.counts[label] == len(places)


def test_drawn_features_are_like_those_seen() -> None:
    store, _ = collected()
    drawn, labels = store.draw(torch.Generator().manual_seed(0))
    assert torch.bincount(labels).tolist() == [5000] * 3
    for label in range(3):
        mean = drawn[labels == label].mean(0)
        expected = store.directions[label] * store.lengths[label]
        assert (mean - expected).norm() < 0.05 * expected.norm()
    again, _ = store.draw(torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again)


def test_later_steps_leave_old_classes_as_they_are() -> None:
    store, _ = collected()
    before = {name: value.clone() for name, value in store.named_buffers()}
    store.grow(NEXT)
    store.collect(features, batches(0, 4), NEXT)
    for name, value in store.named_buffers():
        assert torch.equal(value[:3], before[name]) and value[3].abs().sum() > 0, name


def test_a_class_that_is_nowhere_is_not_drawn() -> None:
    store = Gaussians(3, per_class=2)
    store.grow(FIRST)
    store.collect(features, batches(0, 2), FIRST)
    assert store.draw(torch.Generator())[1].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", [Gaussians, Mixtures])
def test_what_is_known_of_a_store_goes_with_its_content(kind: type[Gaussians | Mixtures]) -> None:
    """A host asks the device once which classes there are; another content is asked anew."""
    store, other = kind(3, per_class=2), kind(3, per_class=2)
    for each, label in ((store, 2), (other, 3)):
        each.grow(FIRST)
        each.collect(features, batches(0, label), FIRST)
        assert len(each.draw(torch.Generator())[1]) == 2 * label
    store.load_state_dict(other.state_dict())
    assert store.draw(torch.Generator())[1].tolist() == other.draw(torch.Generator())[1].tolist()


def test_two_vectors_and_three_numbers_a_class() -> None:
    store, _ = collected()
    size = store.counts.element_size()
    assert bytes_per_class(store, 3) == (2 * 3 + 3) * size
