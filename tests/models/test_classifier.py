"""The classifiers that grow (the plain one's balanced start is checked with the losses, tests/losses)."""

from math import log

import pytest
import torch

from segue.models.classifier import GrowingClassifier, UnknownClassifier, fold_unknown


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
    classifier, h = grown(3).double(), torch.randn(2, 8, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        before = classifier(h)
        classifier.grow(2, balanced=False)
        assert torch.allclose(classifier(h)[:, :3], before, rtol=0, atol=1e-12)
        classifier.grow(4, balanced=True)
        after = classifier(h)
        torch.testing.assert_close(after[:, 0], before[:, 0] - log(5))
        assert torch.allclose(after[:, 1:3], before[:, 1:], rtol=0, atol=1e-12)


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


# With an unknown


def grown_unknown(*steps: int, balanced: bool = False) -> UnknownClassifier:
    """With statistics of its own in every norm."""
    torch.manual_seed(0)
    classifier = UnknownClassifier(8)
    for number, channels in enumerate(steps):
        classifier.grow(channels, balanced and number > 0)
        if number == 0:
            classifier.train()
            classifier(torch.randn(4, 8, 3, 4))
    return classifier.eval()


def logit(p: float) -> float:
    return log(p / (1 - p))


@pytest.mark.parametrize("balanced", [False, True])
def test_unknown_is_a_channel_more_that_nobody_sees(balanced: bool) -> None:
    classifier, h = grown_unknown(3, 2, 1, balanced=balanced), torch.randn(2, 8, 3, 4)
    assert classifier.sizes == (3, 2, 1)
    assert [part[-1].out_channels for part in classifier.parts] == [2, 2, 1]
    scores = classifier.scores(h)
    assert scores.shape == (2, 7, 3, 4) and classifier(h).shape == (2, 6, 3, 4)
    heads = [classifier.background, *classifier.parts, classifier.unknown]
    torch.testing.assert_close(scores, torch.cat([head(h) for head in heads], dim=1))
    torch.testing.assert_close(classifier(h), fold_unknown(scores))


def test_new_heads_are_copies_of_the_unknown() -> None:
    classifier, h = grown_unknown(3), torch.randn(2, 8, 3, 4)
    before = classifier.scores(h)
    classifier.grow(2, balanced=True)
    classifier.eval()
    after = classifier.scores(h)
    torch.testing.assert_close(after[:, [0, 1, 2, 5]], before)
    torch.testing.assert_close(after[:, 3:5], before[:, 3:].expand(-1, 2, -1, -1))
    with torch.no_grad():
        classifier.unknown[-1].bias += 1  # a copy, not the unknown itself
    torch.testing.assert_close(classifier.scores(h)[:, 3:5], after[:, 3:5])


def test_first_heads_and_unbalanced_ones_are_drawn() -> None:
    torch.manual_seed(0)
    classifier = UnknownClassifier(8)
    classifier.grow(3, balanced=True)  # nothing was unknown before
    classifier.grow(2, balanced=False)
    for part in classifier.parts:
        assert not torch.equal(part[0].weight, classifier.unknown[0].weight)


def test_new_heads_take_the_type_of_the_old() -> None:
    classifier = grown_unknown(3).double()
    for balanced in (False, True):
        classifier.grow(2, balanced)
    assert {p.dtype for p in classifier.parameters()} == {torch.float64}
    assert classifier.scores(torch.randn(1, 8, 2, 2).double()).dtype == torch.float64


def test_probability_of_the_unknown_is_added_to_backgrounds() -> None:
    scores = torch.tensor([logit(0.2), 1.5, -7.0, logit(0.3)]).view(1, 4, 1, 1)
    assert fold_unknown(scores).flatten().tolist() == pytest.approx([logit(0.5), 1.5, -7.0], abs=1e-6)
    two = torch.tensor([[logit(0.1), logit(0.05)], [logit(0.6), logit(0.3)]]).view(2, 2, 1, 1)
    assert fold_unknown(two).flatten().tolist() == pytest.approx([logit(0.15), logit(0.9)], abs=1e-5)


@pytest.mark.parametrize("size", [20.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_extreme_scores_stay_finite(size: float, dtype: torch.dtype) -> None:
    """More than one in all, less than any: the sum of two probabilities stays a probability."""
    signs = torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    scores = torch.cat([signs[:, :1], torch.zeros(4, 1), signs[:, 1:]], dim=1)
    scores = (size * scores).to(dtype).view(4, 3, 1, 1).requires_grad_()
    folded = fold_unknown(scores)
    assert folded.dtype == torch.float32 and torch.isfinite(folded).all()
    assert (folded[:3, 0] > 13).all() and (folded[3, 0] < -13).all()
    folded.sum().backward()
    assert torch.isfinite(scores.grad).all()


def test_unknown_classifier_trains() -> None:
    classifier = grown_unknown(3, 2, balanced=True).train()
    classifier.scores(torch.randn(2, 8, 3, 4)).square().sum().backward()
    assert all(p.requires_grad and p.grad.abs().sum() > 0 for p in classifier.parameters())


def test_weights_fit_an_unknown_classifier_grown_the_same_way_only() -> None:
    classifier = grown_unknown(3, 2, balanced=True)
    state, same, h = classifier.state_dict(), grown_unknown(3, 2), torch.randn(1, 8, 2, 2)
    assert not torch.equal(same(h), classifier(h))
    same.load_state_dict(state, strict=True)
    assert torch.equal(same(h), classifier(h))
    others = (grown_unknown(3), grown_unknown(5), grown_unknown(2, 3), grown_unknown(3, 2, 1), grown(3, 2))
    for other in others:
        with pytest.raises(RuntimeError, match="Error"):
            other.load_state_dict(state, strict=True)
