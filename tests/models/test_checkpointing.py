"""Checkpointed blocks: the same numbers to the last bit, fewer activations, the same names."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.models.segmenter import Segmenter

BACKBONES = {"tiny": 8, "test_resnet": 16, "test_efficientnet": 16, "test_convnext": 16}


def segmenter(backbone: str, frozen: int = 0) -> Segmenter:
    torch.manual_seed(0)
    stride = BACKBONES[backbone]
    config = ModelConfig(backbone=backbone, head="tiny", output_stride=stride, frozen_stages=frozen)
    model = Segmenter(config)
    model.grow(Step(0, (1, 2)), balanced=False)
    return model.train()


def pictures() -> Tensor:
    return torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(1))


def trained(model: Segmenter, iterations: int = 2) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Losses of a few iterations, then weights and statistics."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    losses = []
    for _ in range(iterations):
        loss = model(pictures()).logits.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, model.state_dict()


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("norm_frozen", [False, True])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_equal_to_the_last_bit(backbone: str, norm_frozen: bool, frozen: int) -> None:
    found = []
    for checkpointed in (False, True):
        model = segmenter(backbone, frozen)
        if checkpointed:
            model.checkpoint()
        model.norm_frozen = norm_frozen
        found.append(trained(model.train()))
    (losses, state), (ours, own) = found
    assert all(map(torch.equal, losses, ours)) and losses[0] != losses[1]
    assert own.keys() == state.keys()
    for name, value in state.items():  # with the running statistics and their counts
        assert torch.equal(own[name], value), name


@pytest.mark.parametrize("backbone", BACKBONES)
def test_less_is_kept(backbone: str) -> None:
    def kept(model: Segmenter) -> int:
        weights, maps = {p.data_ptr() for p in model.parameters()}, {}

        def keep(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in weights:
                maps[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = model.encode(pictures())  # kept alive: no address is used twice
        assert out[-1].requires_grad
        return sum(maps.values())

    plain, checkpointed = segmenter(backbone), segmenter(backbone)
    checkpointed.checkpoint()
    assert kept(checkpointed) < 0.8 * kept(plain)


def test_a_copy_is_checkpointed_by_itself() -> None:
    model = segmenter("tiny")
    model.checkpoint()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.backbone.stages[0][0].weight.zero_()
        twin.eval(), model.eval()
        assert not torch.equal(model(pictures()).logits, twin(pictures()).logits)
    trained(twin.train())
    assert all(p.grad is None for p in model.parameters())


def test_nothing_is_run_twice_without_gradients() -> None:
    model, calls = segmenter("tiny"), []
    model.checkpoint()
    model.backbone.stages[0][0].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        model.eval()(pictures())
    assert len(calls) == 1
    model.train()(pictures()).logits.sum().backward()
    assert len(calls) == 3


def test_a_backbone_without_blocks_is_refused() -> None:
    model = Segmenter(ModelConfig(backbone="regnetx_002", head="tiny", output_stride=32))
    with pytest.raises(UserError, match="no blocks in the backbone regnetx_002"):
        model.checkpoint()
