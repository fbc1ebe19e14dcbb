"""The classifier that grows (its balanced start is checked with the losses, tests/losses)."""

from math import log

import pytest
import torch

from segue.models.classifier import GrowingClassifier


def grown(*steps: int, balanced: bool = False) -> GrowingClassifier:
    torch.manual_seed(0)
    classifier = GrowingClassifier(8)
    for number, channels in enumerate(steps):
        classifier.grow(channels, balanced and number > 0)
    return classifier


@pytest.mark.parametrize("balanced", [False, True])
def test_channels_add_up(balanced: bool) -> None:
    classifier = grown(3, 2, 1, balanced=balanced)
    assert sum(classifier.sizes) == 6
    assert classifier(torch.randn(2, 8, 3, 4)).shape == (2, 6, 3, 4)
    assert [part.out_channels for part in classifier.parts] == [3, 2, 1]
    assert sum(p.numel() for p in classifier.parameters()) == 6 * (8 + 1)


def test_old_logits_stay_when_it_grows() -> None:
    classifier, h = grown(3), torch.randn(2, 8, 3, 4)
    with torch.no_grad():
        before = classifier(h)
        classifier.grow(2, balanced=False)
        assert torch.equal(classifier(h)[:, :3], before)
        classifier.grow(4, balanced=True)
        after = classifier(h)
        torch.testing.assert_close(after[:, 0], before[:, 0] - log(5))
        assert torch.equal(after[:, 1:3], before[:, 1:])


@pytest.mark.parametrize("balanced", [False, True])
def test_new_channels_take_the_type_of_the_old(balanced: bool) -> None:
    classifier = grown(3).double()
    classifier.grow(2, balanced)
    assert classifier(torch.randn(1, 8, 2, 2).double()).dtype == torch.float64


def test_new_channels_train() -> None:
    classifier = grown(3, 2, balanced=True)
    classifier(torch.randn(2, 8, 3, 4)).square().sum().backward()
    assert all(p.requires_grad and p.grad.abs().sum() > 0 for p in classifier.parameters())


def test_weights_fit_a_classifier_grown_the_same_way_only() -> None:
    state = grown(3, 2).state_dict()
    same = grown(3, 2)
    for parameter in same.parameters():
        torch.nn.init.zeros_(parameter)
    same.load_state_dict(state, strict=True)
    h = torch.randn(1, 8, 2, 2)
    torch.testing.assert_close(same(h), grown(3, 2)(h))
    for other in (grown(3), grown(5), grown(2, 3), grown(3, 2, 1)):
        with pytest.raises(RuntimeError, match="Error"):
            other.load_state_dict(state, strict=True)
