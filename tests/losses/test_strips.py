"""Losses from strips equal the plain way (interpolate, then the loss), in value and gradient."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import plain
from segue import losses
from segue.losses import _one_pass as one_pass
from segue.losses import _strips as strips
from segue.losses._strips import Resampling, pixel_answers
from segue.losses.resizing import resized_as

OLD, CHANNELS = 4, 7
Losses = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]
CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.0, 1.0, 1.0])
IMAGE_WEIGHTS = torch.tensor([0.25, 3.0])


def both(source: object, binary: bool) -> Losses:
    """Cross-entropy and distillation in one go; plainly one after the other."""
    if source is losses:
        return losses.distilled_binary_cross_entropy if binary else losses.distilled_cross_entropy
    prefix = "binary_" if binary else ""
    first, second = (getattr(plain, f"{prefix}{name}") for name in ("cross_entropy", "distillation"))
    return lambda x, old, labels: (first(x, labels), second(x, old, labels.shape[-2:]))


def cases(source: object) -> dict[str, Losses]:
    """The same losses of either source."""
    weights = (CLASS_WEIGHTS, IMAGE_WEIGHTS)
    return {
        "ce": lambda x, old, y: (source.cross_entropy(x, y),),
        "weighted ce": lambda x, old, y: (source.cross_entropy(x, y, *(w.to(x.dtype) for w in weights)),),
        "unbiased ce": lambda x, old, y: (source.unbiased_cross_entropy(x, y, OLD),),
        "bce": lambda x, old, y: (source.binary_cross_entropy(x, y),),
        "kd": lambda x, old, y: (source.distillation(x, old, size=y.shape[-2:]),),
        "binary kd": lambda x, old, y: (source.binary_distillation(x, old, size=y.shape[-2:]),),
        "unbiased kd": lambda x, old, y: (source.unbiased_distillation(x, old, None, size=y.shape[-2:]),),
        "balanced kd": lambda x, old, y: (
            source.unbiased_distillation(x, old, IMAGE_WEIGHTS.to(x.dtype), size=y.shape[-2:]),
        ),
        "incremental": lambda x, old, y: source.incremental_losses(x, old, y, OLD),
        "balanced incremental": lambda x, old, y: source.incremental_losses(x, old, y, OLD, 0.3),
        "ce and kd": both(source, binary=False),
        "bce and kd": both(source, binary=True),
    }


OURS, PLAIN = cases(losses), cases(plain)


def draw(*shape: int, seed: int = 0, scale: float = 3.0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def draw_labels(*shape: int, seed: int = 0) -> Tensor:
    """Background, new classes and void."""
    labels = torch.randint(0, CHANNELS + 2, shape, generator=torch.Generator().manual_seed(seed))
    labels[labels < OLD] = 0
    labels[labels >= CHANNELS] = 255
    return labels


def measure(loss: Losses, x: Tensor, old: Tensor, labels: Tensor) -> list[Tensor]:
    """The values, and the gradient of each alone."""
    x = x.clone().requires_grad_()
    values = loss(x, old, labels)
    gradients = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in values]
    return [*values, *gradients]


def assert_equal(ours: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Relative to the largest element: a gradient has entries of all sizes."""
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= tolerance * b.abs().max()


SIZES = {
    "stride 16": ((2, 3), (32, 48)),
    "odd": ((5, 3), (33, 50)),
    "same": ((6, 5), (6, 5)),
    "rows alone": ((3, 8), (11, 8)),
    "columns alone": ((8, 3), (8, 11)),
    "smaller": ((9, 7), (4, 5)),
    "one place": ((1, 1), (8, 8)),
    "hardly larger": ((7, 7), (8, 9)),
}


def check_against_plain(name: str, size: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = SIZES[size]
    monkeypatch.setattr(strips, "LEAST_ROWS", rows)
    monkeypatch.setattr(strips, "STRIP_ELEMENTS", rows * CHANNELS * high[1])
    x, old, labels = draw(2, CHANNELS, *low), draw(2, OLD, *low, seed=1), draw_labels(2, *high)
    assert_equal(measure(OURS[name], x, old, labels), measure(PLAIN[name], x, old, labels), 1e-9)


@pytest.mark.parametrize("name", OURS)
def test_every_loss_equals_the_plain_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_against_plain(name, "odd", 5, monkeypatch)


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("size", SIZES)
def test_any_size_in_any_strips(size: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loss for each of the two ways: over all classes together, and each class by itself."""
    for name in ("balanced incremental", "bce and kd"):
        check_against_plain(name, size, rows, monkeypatch)


@pytest.mark.parametrize("size", [(33, 50), (512, 512)])
def test_large_maps_in_single_precision(size: tuple[int, int]) -> None:
    """Sums of many pixels keep nearly all digits: they are near the truth."""
    x, old = draw(1, CHANNELS, 32, 32, dtype=torch.float32), draw(1, OLD, 32, 32, seed=1, dtype=torch.float32)
    labels = draw_labels(1, *size)
    exact = measure(PLAIN["incremental"], x.double(), old.double(), labels)
    ours = measure(OURS["incremental"], x, old, labels)
    assert all(value.dtype == torch.float32 for value in ours)
    assert_equal([value.double() for value in ours], exact, 1e-4)


def test_teacher_may_have_a_map_of_its_own_size() -> None:
    x, old, labels = draw(2, CHANNELS, 4, 6), draw(2, OLD, 3, 2, seed=1), draw_labels(2, 19, 21)
    for name in ("incremental", "ce and kd", "bce and kd"):
        assert_equal(measure(OURS[name], x, old, labels), measure(PLAIN[name], x, old, labels), 1e-9)


@pytest.mark.parametrize("scale", [1e3, 1e5])
@pytest.mark.parametrize(
    "name", ["ce", "unbiased ce", "bce", "unbiased kd", "balanced incremental", "bce and kd"]
)
def test_logits_of_any_size(name: str, scale: float) -> None:
    """Exponentials vanish: every sum then has a maximum of its own."""
    x, old = draw(2, CHANNELS, 3, 4, scale=scale), draw(2, OLD, 3, 4, seed=1, scale=scale)
    labels = draw_labels(2, 20, 30)
    assert_equal(measure(OURS[name], x, old, labels), measure(PLAIN[name], x, old, labels), 1e-9)


@pytest.mark.parametrize("name", ["ce", "unbiased ce", "kd", "unbiased kd", "incremental"])
def test_both_ways_to_the_softmax_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an accelerator takes, where nobody asks how small the logits are, and the quick way."""
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    taken: list[bool] = []
    bounded = one_pass._below_zero
    monkeypatch.setattr(one_pass, "_below_zero", lambda m: taken.append(bounded(m)[1]) or bounded(m))
    quick = measure(OURS[name], x, old, labels)
    assert taken and all(taken)
    monkeypatch.setattr(one_pass, "_below_zero", lambda m: (m, False))
    assert_equal(measure(OURS[name], x, old, labels), quick, 1e-12)


def test_confident_predictions_keep_their_digits() -> None:
    """A loss near zero is no small difference of large sums: nearer to the truth than the plain way is."""
    peaks = F.one_hot(torch.randint(0, OLD, (1, 8, 8), generator=torch.Generator().manual_seed(0)), CHANNELS)
    x, labels = 20 * peaks.permute(0, 3, 1, 2).float(), torch.zeros(1, 64, 64, dtype=torch.long)
    old = x[:, :OLD].clone()
    exact = PLAIN["incremental"](x.double(), old.double(), labels)
    found, usual = OURS["incremental"](x, old, labels), PLAIN["incremental"](x, old, labels)
    assert exact[0] < 1e-4
    assert abs(found[0] - exact[0]) < abs(usual[0] - exact[0])
    assert found[1].item() == pytest.approx(exact[1].item(), rel=1e-4)


@pytest.mark.precision("float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["weighted ce", "balanced incremental", "bce and kd"])
def test_half_precision_and_autocast(name: str, dtype: torch.dtype) -> None:
    """All work is done in single precision, whatever surrounds it; the gradient has the logits' type."""
    x, old = (draw(2, k, 3, 4, seed=k).to(dtype) for k in (CHANNELS, OLD))
    labels = draw_labels(2, 24, 32)
    expected = measure(OURS[name], x.float(), old.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = measure(OURS[name], x, old, labels)
    count = len(expected) // 2
    assert_equal(found[:count], expected[:count], 1e-6)
    for a, b in zip(found[count:], expected[count:], strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b.to(dtype))


def test_a_term_may_be_used_twice_and_gradients_add_up() -> None:
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    ce, kd = measure(OURS["incremental"], x, old, labels)[2:]
    leaf = x.clone().requires_grad_()
    for _ in range(2):  # accumulated over two calls
        first, second = losses.incremental_losses(leaf * 1, old, labels, OLD)
        (first + 10 * second + first**2).backward()
    value = OURS["unbiased ce"](x, old, labels)[0]
    torch.testing.assert_close(leaf.grad, 2 * (ce + 10 * kd + 2 * value * ce))


def test_a_term_alone_can_be_used() -> None:
    """The other one's gradient then counts for nothing."""
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    leaf = x.clone().requires_grad_()
    losses.incremental_losses(leaf, old, labels, OLD)[1].backward()
    torch.testing.assert_close(leaf.grad, measure(OURS["unbiased kd"], x, old, labels)[1])


def test_values_without_gradients_are_the_same() -> None:
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    for name, loss in OURS.items():
        expected = measure(loss, x, old, labels)
        with torch.inference_mode():
            values = loss(x, old, labels)
        assert all(torch.equal(a, b) for a, b in zip(values, expected, strict=False)), name


def test_inputs_stay_as_they_are() -> None:
    given = draw(2, CHANNELS, 20, 30), draw(2, OLD, 20, 30, seed=1), draw_labels(2, 20, 30)
    kept = [tensor.clone() for tensor in given]
    for loss in OURS.values():
        measure(loss, *given)
        assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))


def test_targets_and_weights_get_no_gradient() -> None:
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    with pytest.raises(ValueError, match="detach"):
        losses.incremental_losses(x, old.requires_grad_(), labels, OLD)
    with pytest.raises(ValueError, match="detach"):
        losses.cross_entropy(x, labels, image_weight_B=IMAGE_WEIGHTS.clone().requires_grad_())


MISFITS: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "2 labels, not 4": lambda x, old, y: losses.cross_entropy(x, y[:2]),
    "1 labels, not 4": lambda x, old, y: losses.unbiased_cross_entropy(x, y[:1], OLD),
    "4 maps of logits, but 3": lambda x, old, y: losses.distillation(x, old[:3]),
    "3 background weights, not 4": lambda x, old, y: losses.unbiased_distillation(x, old, torch.ones(3)),
    "5 class weights, not 7": lambda x, old, y: losses.cross_entropy(x, y, torch.ones(5)),
    "2 image weights, not 4": lambda x, old, y: losses.cross_entropy(x, y, None, torch.ones(2)),
    "so 0 cannot be old": lambda x, old, y: losses.unbiased_cross_entropy(x, y, 0),
    "so 8 cannot be old": lambda x, old, y: losses.unbiased_cross_entropy(x, y, 8),
    "teacher has 7 channels, the student 4": lambda x, old, y: losses.distillation(old, x),
}


@pytest.mark.parametrize("message", MISFITS)
def test_what_does_not_fit_together_is_refused(message: str) -> None:
    x, old, labels = draw(4, CHANNELS, 3, 4), draw(4, OLD, 3, 4, seed=1), draw_labels(4, 20, 30)
    with pytest.raises(ValueError, match=message):
        MISFITS[message](x, old, labels)


def test_second_derivatives_are_refused() -> None:
    x, labels = draw(2, CHANNELS, 3, 4).requires_grad_(), draw_labels(2, 20, 30)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(losses.cross_entropy(x, labels), x, create_graph=True)


@pytest.mark.parametrize("gamma", [1.0, 1e6, 1e19])
@pytest.mark.parametrize("gap", [30.0, 44.0, 87.0, 90.0, 110.0])
def test_sums_that_nearly_vanish_and_large_weights(gap: float, gamma: float) -> None:
    """Exponentials vanish at a gap of 88 in single precision; a weight divided by one overflows before."""
    x = draw(1, CHANNELS, 3, 3, scale=0.1, dtype=torch.float32)
    x[:, OLD] += gap
    old, labels = draw(1, OLD, 3, 3, seed=1, dtype=torch.float32), draw_labels(1, 20, 20)

    def found(source: object, *maps: Tensor) -> list[Tensor]:
        return measure(lambda x, old, y: source.incremental_losses(x, old, y, OLD, gamma), *maps, labels)

    exact = found(plain, x.double(), old.double())
    for ours, usual, truth in zip(found(losses, x, old), found(plain, x, old), exact, strict=True):
        # large weights of both signs cancel: neither way is exact
        allowed = 3 * (usual - truth).abs().max() + 1e-5 * truth.abs().max()
        assert (ours - truth).abs().max() <= allowed


def test_weights_of_any_precision() -> None:
    x, labels = draw(2, CHANNELS, 3, 4, dtype=torch.float32), draw_labels(2, 20, 30)
    found = losses.cross_entropy(x, labels, CLASS_WEIGHTS.double(), IMAGE_WEIGHTS.double())
    torch.testing.assert_close(found, losses.cross_entropy(x, labels, CLASS_WEIGHTS, IMAGE_WEIGHTS))
    doubled, old = x.double(), draw(2, OLD, 3, 4, seed=1)
    exact = torch.tensor(0.3, dtype=torch.float64)
    assert torch.equal(
        losses.unbiased_distillation(doubled, old, 0.3), losses.unbiased_distillation(doubled, old, exact)
    )


def test_only_the_gradient_on_the_map_is_kept() -> None:
    """Nothing of the labels' resolution outlives the forward pass."""
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 48, 64)
    x.requires_grad_()
    kept: list[tuple[int, ...]] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        losses.incremental_losses(x, old, labels, OLD)
    assert kept == [x.shape, x.shape]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_any_memory_format(memory_format: torch.memory_format) -> None:
    x, old, labels = draw(2, CHANNELS, 3, 4), draw(2, OLD, 3, 4, seed=1), draw_labels(2, 20, 30)
    expected = measure(OURS["incremental"], x, old, labels)
    found = measure(
        OURS["incremental"], x.to(memory_format=memory_format), old.to(memory_format=memory_format), labels
    )
    assert_equal(found, expected, 1e-12)


@pytest.mark.parametrize("columns", [4, 7, 2048])
@pytest.mark.parametrize("size", SIZES)
def test_resampling_is_interpolation_and_its_transpose(
    size: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strips, "BLOCK", columns)
    low, high = SIZES[size]
    x, y = draw(2, 3, *low), draw(2, high[0], 3, high[1], seed=1)
    resampling = Resampling(low, high, x)
    strip = partial(resampling.strip, resampling.widen(x))
    whole = strip(slice(0, high[0])).transpose(1, 2)
    torch.testing.assert_close(whole, F.interpolate(x, size=high, mode="bilinear", align_corners=False))
    middle = slice(high[0] // 3, high[0])
    torch.testing.assert_close(strip(middle).transpose(1, 2), whole[:, :, middle])
    back = torch.zeros_like(resampling.widen(x))
    resampling.add_back(back, y, slice(0, high[0]))
    torch.testing.assert_close((resampling.narrow(back) * x).sum(), (whole * y.transpose(1, 2)).sum())


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_answers_at_full_resolution(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "LEAST_ROWS", rows)
    monkeypatch.setattr(strips, "STRIP_ELEMENTS", rows * 5 * 13)
    x = draw(3, 5, 2, 4)
    full = F.interpolate(x, size=(10, 13), mode="bilinear", align_corners=False)
    best, index = pixel_answers(x, (10, 13), lambda z: z.max(2))
    torch.testing.assert_close(best, full.amax(1))
    assert torch.equal(index, full.argmax(1))


@pytest.mark.parametrize("resize", ["bilinear", "aligned", "nearest"])
def test_blocks_of_columns_give_what_one_matrix_gives(resize: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(2, 3, 4, 9)
    with resized_as(resize):
        expected = Resampling((4, 9), (7, 60), x).widen(x)
        monkeypatch.setattr(strips, "BLOCK", 13)
        found = Resampling((4, 9), (7, 60), x).widen(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [(3, 400_000), (400_000, 3)])
def test_a_long_thin_picture_needs_no_matrix_of_its_length(size: tuple[int, int]) -> None:
    """One matrix for the long side would have 400,000 x 2,000 numbers."""
    strips.resampling_band.cache_clear()
    low = tuple(max(1, side // 200) for side in size)
    largest = []
    plain = strips.resampling_band.__wrapped__

    def seen(*given: object) -> tuple[slice, torch.Tensor]:
        near, weights = plain(*given)
        largest.append(weights.numel())
        return near, weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strips, "resampling_band", seen)
        best, index = pixel_answers(draw(1, 2, *low), size, lambda z: z.max(2))
    assert best.shape == index.shape == (1, *size)
    assert max(largest) < 2**22
