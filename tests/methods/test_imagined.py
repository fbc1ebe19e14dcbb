"""Features imagined from the teacher: where classes lie, what they are called, and that nothing is kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from step_one import step_one
from torch import Tensor, nn

from segue.core import plugins
from segue.core.declaration import keeps_with
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.methods._stores import rehearsal_loss
from segue.methods._stores.imagined import TOGETHER, Imagined, before_activation, correlations
from segue.models.classifier import GrowingClassifier

STEP = Step(1, (3,), (1, 2))
MANY = 20_000


def leaky(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0.01 * x)


def begun(mixing: Tensor) -> tuple[Imagined, GrowingClassifier, nn.BatchNorm2d]:
    """With a teacher of 3 channels whose features, before their activation, are `mixing` times noise."""
    generator = torch.Generator().manual_seed(0)
    width = len(mixing)
    classifier, norm = GrowingClassifier(width), nn.BatchNorm2d(width)
    classifier.grow(3, balanced=False)
    with torch.no_grad():
        norm.bias.copy_(torch.randn(width, generator=generator))
        norm.weight.copy_(torch.rand(width, generator=generator) - 1.5)  # its sign says nothing
        classifier.parts[0].weight.normal_(generator=generator)
    maps = [torch.randn(2, 8, 8, width, generator=generator) @ mixing.mT for _ in range(60)]
    features = [leaky(each).movedim(-1, 1) for each in maps]

    def teacher(images: Tensor) -> SimpleNamespace:
        return SimpleNamespace(features={"h": images})

    teacher.model = SimpleNamespace(classifier=classifier)
    labels = torch.zeros(2, 8, 8, dtype=torch.long)
    labels[:, 0] = 3  # a new class: not a place of the old ones
    imagined = Imagined(per_class=MANY, background=MANY)
    for each in features:
        each[:, :, 0] = 1e6
    imagined.begin(teacher, norm, [Batch(each, labels, ["a", "b"]) for each in features], STEP)
    return imagined, classifier, norm


def test_classes_lie_where_a_classifier_of_gaussians_has_them() -> None:
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 2.0]])
    imagined, classifier, norm = begun(mixing)
    drawn, _ = imagined.draw(torch.Generator().manual_seed(1))
    x = before_activation(drawn).unflatten(0, (3, MANY))
    rows, deviation = classifier.parts[0].weight.flatten(1).detach(), norm.weight.detach().abs()
    together = torch.eye(3)
    together[0, 1] = together[1, 0] = TOGETHER * 0.8
    covariance = torch.diag(deviation) @ together @ torch.diag(deviation)
    expected = norm.bias.detach() + (rows - rows[:1]) @ covariance
    # six standard errors of a mean of so many, and of the correlation that 60 maps give
    torch.testing.assert_close(x.mean(1), expected, atol=0.1, rtol=0)
    torch.testing.assert_close(x[0].mT.cov(), covariance, atol=0.1, rtol=0)


def test_the_teacher_names_what_is_imagined() -> None:
    imagined, classifier, _ = begun(torch.eye(4))
    generator = torch.Generator().manual_seed(2)
    drawn, answers = imagined.draw(generator)
    torch.testing.assert_close(answers, classifier.at_places(drawn).softmax(1).detach())
    again, _ = imagined.draw(torch.Generator().manual_seed(2))
    assert torch.equal(drawn, again) and not torch.equal(drawn, imagined.draw(generator)[0])


def test_channels_that_never_vary_go_with_no_other() -> None:
    features = torch.cat([torch.randn(50, 2), torch.ones(50, 1), torch.ones(50, 1)], dim=1)
    found = correlations(features.mT @ features)
    torch.testing.assert_close(found[2], torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(found[:2, :2], features[:, :2].mT.corrcoef())


def test_answers_are_diverged_from_and_labels_are_learned() -> None:
    classifier = GrowingClassifier(4)
    classifier.grow(3, balanced=False)
    classifier.grow(1, balanced=True)
    features, answers = torch.randn(5, 4), torch.randn(5, 3).softmax(1)
    logits, labels = torch.randn(2, 4, 2, 2), torch.zeros(2, 2, 2, dtype=torch.long)
    found = rehearsal_loss((features, answers), 3, classifier, logits, labels, STEP)
    ours = classifier.at_places(features).softmax(1)[:, :3]
    torch.testing.assert_close(found, (answers * (answers / ours).log()).sum() / (5 + 3))


def test_nothing_is_kept() -> None:
    kind = plugins.find("method", "caf")
    params = kind.Config(rehearsal=type(kind.Config().rehearsal)(store="imagined"))
    assert keeps_with(kind, params) == "teacher"
    with_it = step_one("caf", {"rehearsal": {"store": "imagined"}}, updates=1).method.state_dict()
    without = step_one("caf", {"rehearsal": {"weight": 0.0}}, updates=1).method.state_dict()
    assert {name: value.shape for name, value in with_it.items()} == {
        name: value.shape for name, value in without.items()
    }


def test_a_network_from_elsewhere_is_refused() -> None:
    kind = plugins.find("method", "caf")
    model = SimpleNamespace(config=SimpleNamespace(backbone="elsewhere"))
    method = SimpleNamespace(config=kind.Config())
    with pytest.raises(UserError, match=r"rehearsal\.store=features"):
        kind.imagination(method, model)
