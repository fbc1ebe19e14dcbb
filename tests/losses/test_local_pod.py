"""Local POD: the pooled vector and its tiles, the logits' folding, the weights of maps and steps."""

from math import sqrt

import pytest
import torch
from torch import Tensor

from segue.losses import local_pod
from segue.losses.pooled import fold_new_logits, pooled_strips


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def at_one_place(*values: float) -> Tensor:
    """A map of a single place, a value per channel: its row and its column mean are the value itself."""
    return torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1)


def strips_one_by_one(m: Tensor, scales: tuple[int, ...]) -> list[float]:
    """Means of all rows and columns of all tiles of one channel."""
    found = []
    for s in scales:
        th, tw = m.shape[0] // s, m.shape[1] // s
        for i in range(s if th and tw else 0):
            for j in range(s):
                tile = m[i * th : (i + 1) * th, j * tw : (j + 1) * tw]
                found += [row.mean().item() for row in tile] + [column.mean().item() for column in tile.T]
    return found


# The pooled vector


@pytest.mark.parametrize("channels", [1, 5])
def test_length_of_a_32_by_32_map(channels: int) -> None:
    assert pooled_strips(draw(2, channels, 32, 32)).shape == (2, 448 * channels)


def test_strips_of_a_tiny_map_by_hand() -> None:
    strips = pooled_strips(torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]]), scales=(1, 2))
    rows_columns, tiles = [1.5, 4.5, 2.0, 4.0], [1.0, 2.0, 3.0, 6.0]  # a tile of one place is row and column
    assert sorted(strips[0].tolist()) == sorted([*rows_columns, *tiles, *tiles])


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (9, 4), (3, 8), (2, 2), (1, 1)])
@pytest.mark.parametrize("scales", [(1,), (2, 1), (1, 2, 4)])
def test_strips_of_any_size(size: tuple[int, int], scales: tuple[int, ...]) -> None:
    """Sizes that do not divide lose their last rows or columns; a scale larger than the map is left out."""
    m = draw(2, 3, *size)
    strips = pooled_strips(m, scales)
    for b in range(2):
        expected = [value for channel in m[b] for value in strips_one_by_one(channel, scales)]
        assert sorted(strips[b].tolist()) == pytest.approx(sorted(expected), abs=1e-12)


def test_rest_of_a_size_that_does_not_divide_is_not_seen() -> None:
    m = draw(1, 1, 5, 7)
    other = m.clone()
    other[..., 4, :], other[..., :, 6] = 9.0, 9.0
    assert torch.equal(pooled_strips(m, (2,)), pooled_strips(other, (2,)))
    assert not torch.equal(pooled_strips(m, (1,)), pooled_strips(other, (1,)))


def test_scale_larger_than_the_map_is_left_out() -> None:
    m = draw(1, 2, 3, 3)
    assert torch.equal(pooled_strips(m, (1, 2, 4)), pooled_strips(m, (1, 2)))
    assert torch.equal(pooled_strips(draw(1, 2, 3, 8), (1, 4)), pooled_strips(draw(1, 2, 3, 8), (1,)))


def test_shuffled_rows_within_a_tile_change_rows_alone() -> None:
    """Where something is matters: the vector is not the same for a map turned around."""
    m = draw(1, 1, 4, 4)
    assert (pooled_strips(m.flip(2)) - pooled_strips(m)).abs().max() > 0.1
    assert (pooled_strips(m.mT) - pooled_strips(m)).abs().max() > 0.1


# Logits


def test_new_logits_count_as_background() -> None:
    folded = fold_new_logits(at_one_place(1, 2, 3, 10, 100), num_old=3)
    assert folded.flatten().tolist() == [111, 2, 3]


def test_only_the_last_map_is_folded_and_before_it_is_squared() -> None:
    old, new = at_one_place(3, 2), at_one_place(1, 2, 4)  # folded 5, 2: squares 25 - 9 and 4 - 4
    value = local_pod([old], [new], num_old=2, num_new=1, logits_factor=0.5)
    assert value.item() == pytest.approx(0.5 * 16 * sqrt(2) * sqrt(3), abs=1e-12)
    with pytest.raises(RuntimeError):
        local_pod([old, old], [new, old], num_old=2, num_new=1)


# The loss


def test_loss_by_hand() -> None:
    # squares 9 - 1 on the stage; 25 - 9 on the logits; row and column of one place: a factor sqrt(2)
    stage, logits = (at_one_place(1), at_one_place(3)), (at_one_place(3, 2), at_one_place(1, 2, 4))
    value = local_pod([stage[0], logits[0]], [stage[1], logits[1]], num_old=2, num_new=1)
    expected = (0.01 * 8 * sqrt(2) + 5e-4 * 16 * sqrt(2)) * sqrt(3 / 1) / 2
    assert value.item() == pytest.approx(expected, abs=1e-12)


def test_norm_runs_over_channels_and_places_and_is_averaged_over_images() -> None:
    old, new = torch.zeros(2, 2, 1, 2), torch.zeros(2, 2, 1, 2)
    new[0, 0, 0], new[0, 1, 0] = torch.tensor([1.0, 3.0]).sqrt(), torch.tensor([2.0, 0.0]).sqrt()
    # first image: rows 2 and 1, columns 1, 3, 2, 0; the second image: nothing
    value = local_pod([old, old], [new, old], 2, 2, factor=1.0, scales=(1,))
    assert value.item() == pytest.approx(sqrt(4 + 1 + 1 + 9 + 4) / 2 * sqrt(2) / 2)


@pytest.mark.parametrize(("num_old", "num_new"), [(16, 5), (16, 1), (3, 2)])
def test_weight_grows_with_all_channels_over_new_ones(num_old: int, num_new: int) -> None:
    old, new = [draw(1, num_old, 4, 4)], [draw(1, num_old + num_new, 4, 4, seed=1)]
    plain = torch.linalg.vector_norm(
        pooled_strips(fold_new_logits(new[0], num_old).square()) - pooled_strips(old[0].square())
    )
    value = local_pod(old, new, num_old, num_new, logits_factor=1.0)
    torch.testing.assert_close(value, plain * sqrt((num_old + num_new) / num_new))


def test_maps_are_averaged() -> None:
    old, new, logits = draw(2, 3, 4, 4), draw(2, 3, 4, 4, seed=1), draw(2, 3, 4, 4, seed=2)
    grown = torch.cat([logits, torch.zeros(2, 1, 4, 4)], dim=1)
    once = local_pod([old, logits], [new, grown], 3, 1)
    thrice = local_pod([old, old, old, logits], [new, new, new, grown], 3, 1)
    torch.testing.assert_close(once * 2, thrice * 4 / 3)
    torch.testing.assert_close(local_pod([old, logits], [new, grown], 3, 1, factor=0.02), 2 * once)


def test_sign_of_a_feature_does_not_count() -> None:
    m, logits = draw(1, 3, 4, 4), draw(1, 3, 2, 2)
    grown = torch.cat([logits, torch.zeros(1, 1, 2, 2)], dim=1)
    assert local_pod([m, logits], [-m, grown], 3, 1).item() == 0


def test_equal_maps_cost_nothing_and_pull_nowhere() -> None:
    z, logits = draw(2, 3, 4, 4), draw(2, 3, 2, 2)
    new_z, grown = z.clone(), torch.cat([logits, torch.zeros(2, 2, 2, 2)], dim=1)
    value = local_pod([z, logits], [new_z.requires_grad_(), grown.requires_grad_()], 3, 2)
    assert value.item() == 0
    for gradient in torch.autograd.grad(value, [new_z, grown]):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.precision("float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype: torch.dtype) -> None:
    old, new = ((300 * draw(1, 2, 4, 4, seed=seed)).to(dtype) for seed in (0, 1))
    logits, grown = (draw(1, channels, 4, 4, seed=2).to(dtype) for channels in (2, 3))
    value = local_pod([old, logits], [new.requires_grad_(), grown.requires_grad_()], 2, 1)
    value.backward()
    assert value.dtype == torch.float32 and torch.isfinite(new.grad).all() and new.grad.abs().sum() > 0
    exact = local_pod([old.double(), logits.double()], [new.detach().double(), grown.detach().double()], 2, 1)
    assert value.item() == pytest.approx(exact.item(), rel=1e-4)


def test_maps_have_to_be_as_many() -> None:
    m = draw(1, 2, 2, 2)
    with pytest.raises(ValueError, match="2 old maps, but 1 new ones"):
        local_pod([m, m], [m], 2, 1)
