"""The refinement head: sizes, parameters, and the image-level branch that is added."""

import pytest
import torch
from torch import Tensor, nn

from segue.models.head import HEADS, DeepLabHead


def head(channels: int = 5, width: int = 4, dilations: tuple[int, ...] = (1, 2)) -> DeepLabHead:
    torch.manual_seed(0)
    return DeepLabHead(channels, width, dilations)


def features(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "width"), [("deeplabv3", 256), ("lite", 128), ("tiny", 64)])
@pytest.mark.parametrize("size", [(7, 5), (1, 1)])
def test_keeps_the_size_of_the_map(name: str, width: int, size: tuple[int, int]) -> None:
    made = head(8, *HEADS[name]).eval()
    with torch.no_grad():
        assert made(features(2, 8, *size)).shape == (2, width, *size)


def test_parameters_of_the_published_head() -> None:
    """2048 channels -> 256: one 1 x 1 and three 3 x 3 branches, norms with weight and bias, no other bias."""
    with torch.device("meta"):
        made = DeepLabHead(2048, *HEADS["deeplabv3"])
    branches = 2048 * 256 * (1 + 3 * 9)
    branch_norm, project = 2 * 1024, 1024 * 256
    pool = 2048 * 256 + 2 * 256 + 256 * 256
    assert branches + branch_norm + project + pool + 2 * 256 == 15_535_104
    assert sum(p.numel() for p in made.parameters()) == 15_535_104
    assert [branch.dilation[0] for branch in made.branches] == [1, 6, 12, 18]
    assert all(m.bias is None for m in made.modules() if isinstance(m, nn.Conv2d))


def test_image_branch_is_added_to_the_projected_branches() -> None:
    """What enters the last norm is projection + pool, for whatever weights."""
    made = head().eval()
    z = features(2, 5, 6, 6)
    entered: list[Tensor] = []
    made.norm.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0].clone()))
    with torch.no_grad():
        made(z)
        local = made.project(made.branch_norm(torch.cat([branch(z) for branch in made.branches], 1)))
        pooled = made.pool(z.mean((2, 3), keepdim=True))
    assert pooled.shape == (2, 4, 1, 1) and pooled.abs().min() > 0
    torch.testing.assert_close(entered[0], local + pooled)


def test_image_branch_sees_the_whole_image() -> None:
    """With the local way cut, every place of the output depends on every place of the input, equally."""
    made = head().eval()
    nn.init.zeros_(made.project.weight)
    z = features(1, 5, 4, 4).requires_grad_()
    made(z)[0, 1, 0, 0].backward()
    assert (z.grad != 0).any()
    torch.testing.assert_close(z.grad, z.grad[:, :, :1, :1].expand_as(z.grad))


def test_activation_is_leaky() -> None:
    made = head()
    out = made(features(4, 5, 6, 6))
    assert (out < 0).any() and out.min() > -0.1 and out.max() > 1
    slopes = {m.negative_slope for m in made.modules() if isinstance(m, nn.LeakyReLU)}
    assert slopes == {0.01}
