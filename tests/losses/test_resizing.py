"""Networks with other ways of resizing: losses and answers follow them."""

import pytest
import torch
import torch.nn.functional as F

from segue.losses import cross_entropy, upsample
from segue.losses.pseudo import most_likely
from segue.losses.resizing import resized_as

PLAIN = {
    "bilinear": {"mode": "bilinear", "align_corners": False},
    "aligned": {"mode": "bilinear", "align_corners": True},
    "nearest": {"mode": "nearest"},
}


@pytest.mark.parametrize("resize", PLAIN)
@pytest.mark.parametrize("size", [(16, 24), (13, 31), (1, 1)])
def test_losses_and_answers_follow_the_network(resize: str, size: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 4, 5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 4, (2, *size), generator=generator)
    large = F.interpolate(logits, size=size, **PLAIN[resize])
    plain = F.cross_entropy(large, labels)
    expected = torch.autograd.grad(plain, logits)[0]
    with resized_as(resize):
        loss = cross_entropy(logits, labels)
        answer = most_likely(logits.detach(), size)[1]
        assert torch.allclose(upsample(logits, size), large)
    assert torch.allclose(loss, plain)
    assert torch.allclose(torch.autograd.grad(loss, logits)[0], expected)
    assert torch.equal(answer, large.argmax(1))
    assert torch.allclose(upsample(logits, size, resize), large)
