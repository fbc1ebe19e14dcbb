"""The CAF layer: identity at the start, what it depends on, its parts and variants, equations by the book."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.models import caf
from segue.models.caf import CafLayer, Excitation, LayerConfig, NonLocal
from segue.models.segmenter import Segmenter

CHANNELS = 6
PAPER = LayerConfig(output="none", pool="none", channel="linear", spatial="linear")
OFFICIAL = LayerConfig(
    carrier="z", residual=False, scaled=False, output="norm", pool="after", start="random", spatial="energy"
)
CONFIGS = {"segue": LayerConfig(), "paper": PAPER, "official": OFFICIAL}
STRATEGIES = ("skip", "zero", "concat")


def layer(config: LayerConfig | None = None, channels: int = CHANNELS, trained: bool = False) -> CafLayer:
    """A layer as it starts, or with random weights everywhere."""
    torch.manual_seed(0)
    made = CafLayer(channels, config)
    return randomised(made) if trained else made


def randomised(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def by(strategy: str, made: CafLayer, z: Tensor, old: Tensor) -> Tensor:
    return made(z, old if strategy == "concat" else None, pad=strategy == "zero")


# At the start


@pytest.mark.parametrize("size", [(8, 8), (7, 5), (1, 1)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_starts_as_the_identity(size: tuple[int, int], strategy: str) -> None:
    z, old = 10 * draw(2, 64, *size), 10 * draw(2, 64, *size, seed=2)
    with torch.no_grad():
        z_bar = by(strategy, layer(channels=64), z, old)
    assert (z_bar - z).abs().max() <= 1e-5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_changes_no_logit_of_a_trained_model(strategy: str) -> None:
    torch.manual_seed(0)
    model = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    model.grow(Step(0, (1, 2, 3)), balanced=False)
    images, labels = torch.randint(0, 256, (2, 3, 48, 40), dtype=torch.uint8), torch.randint(0, 4, (2, 6, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        nn.functional.cross_entropy(model.train()(images).logits, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        before = model(images)
        z = before.features["z"]
        model.fusion = layer(channels=model.backbone.channels[-1])
        if strategy == "zero":
            after = model.classifier(model.refiner(model.fusion(z, pad=True)))
        else:
            after = model(images, draw(*z.shape) if strategy == "concat" else None).logits
    assert before.logits.std() > 0.01
    assert (after - before.logits).abs().max() <= 1e-5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_trained_layer_is_no_identity(strategy: str) -> None:
    z, old = draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)
    assert (by(strategy, layer(trained=True), z, old) - z).abs().max() > 0.1


def test_the_released_layer_has_its_published_size() -> None:
    with torch.device("meta"):
        made = CafLayer(2048, OFFICIAL)
    assert size(made) == 25_712_643
    assert size(made.project_new) == size(made.project_old) == 8_397_824
    assert size(made.fusion) == 8_390_656


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("value", [None, 0.0, 3.7, -250.0])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_released_layer_is_the_identity_at_its_zero_norm(value: float | None, strategy: str) -> None:
    """The spatial map is 0 there. The released code divides rounding noise by rounding noise instead."""
    z = draw(3, 64, 4, 5) if value is None else torch.full((3, 64, 4, 5), value)
    made, old = layer(OFFICIAL, 64).train(), draw(3, 64, 4, 5, seed=2)
    for last, norm in (made.project_new.out, made.project_old.out):
        assert last.weight.any() and not norm.weight.any() and not norm.bias.any()
    with torch.no_grad():
        v = made.fuse(z, old if strategy == "concat" else None, pad=strategy == "zero")
        assert (v == 0).all() if strategy == "skip" else (v == made.fusion.bias.view(1, -1, 1, 1)).all()
        assert made.spatial_attention(v).abs().max() <= 1e-5
        torch.testing.assert_close(by(strategy, made, z, old), z, rtol=1e-5, atol=1e-5)


# What it depends on


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("strategy", ["skip", "zero"])
def test_skip_and_zero_know_nothing_of_the_old_branch(name: str, strategy: str) -> None:
    """Skip does not even know the fusion."""
    made, z = layer(CONFIGS[name], trained=True), draw(2, CHANNELS, 4, 4)
    unused = [made.project_old] + ([made.fusion] if strategy == "skip" else [])
    with torch.no_grad():
        before = by(strategy, made, z, z)
        for parameter in (p for module in unused for p in module.parameters()):
            parameter.mul_(-3).add_(1)
        assert torch.equal(by(strategy, made, z, z), before)


@pytest.mark.parametrize("name", CONFIGS)
def test_concat_depends_on_old_features(name: str) -> None:
    made, z = layer(CONFIGS[name], trained=True), draw(2, CHANNELS, 4, 4)
    with torch.no_grad():
        outs = [made(z, draw(2, CHANNELS, 4, 4, seed=seed)) for seed in (2, 3)]
        others = [outs[1], made(z, torch.zeros_like(z)), made(z), made(z, pad=True)]
    for other in others:
        assert (outs[0] - other).abs().max() > 0.01


@pytest.mark.parametrize("name", CONFIGS)
def test_zero_fuses_zeros_in_place_of_the_projected_old_features(name: str) -> None:
    made, z = layer(CONFIGS[name], trained=True), draw(2, CHANNELS, 4, 4)
    with torch.no_grad():
        new = made.project_new(z)
        v = made.fusion(torch.cat([torch.zeros_like(new), new], dim=1))
        torch.testing.assert_close(made.fuse(z, pad=True), v)
        carrier = v if CONFIGS[name].carrier == "v" else z
        attended = (1 + made.channel_attention(v) * made.spatial_attention(v)) * carrier
        torch.testing.assert_close(made(z, pad=True), attended)
        assert (v - new).abs().max() > 0.1


@pytest.mark.parametrize("name", CONFIGS)
def test_the_slim_copy_skips_without_the_old_branch(name: str) -> None:
    made, z = layer(CONFIGS[name], trained=True), draw(2, CHANNELS, 5, 4)
    with torch.no_grad():
        made(z, 2 * z)  # running statistics other than 0 and 1
        made.eval()
        slim = made.without_old().eval()
        assert torch.equal(slim(z), made(z))
    dropped = {key for key, _ in made.named_parameters()} - {key for key, _ in slim.named_parameters()}
    assert dropped and all(key.startswith(("project_old.", "fusion.")) for key in dropped)
    assert not any("project_old" in key or "fusion" in key for key in slim.state_dict())
    assert size(made) - size(slim) == size(made.project_old) + size(made.fusion)
    with torch.no_grad():  # a copy: training goes on without it
        made.project_new.theta.weight.add_(1)
    assert not torch.equal(slim.project_new.theta.weight, made.project_new.theta.weight)


def test_the_slim_copy_keeps_mode_and_precision() -> None:
    for mode in (True, False):
        slim = layer(OFFICIAL).double().train(mode).without_old()
        assert slim.training == slim.spatial_norm.training == mode
        assert slim(draw(2, CHANNELS, 4, 4).double()).dtype == torch.float64
    bare = layer(LayerConfig(projection=False, attention=False)).without_old().without_old()
    z = draw(2, CHANNELS, 4, 4)
    assert not list(bare.parameters()) and torch.equal(bare(z), z)


@pytest.mark.parametrize("name", ["segue", "paper"])
def test_images_of_a_batch_do_not_mix(name: str) -> None:
    made = layer(CONFIGS[name], trained=True)
    z, old = draw(3, CHANNELS, 4, 4), draw(3, CHANNELS, 4, 4, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(made(z, old)[1:2], made(z[1:2], old[1:2]))


@pytest.mark.parametrize("pool", ["before", "after", "none"])
@pytest.mark.parametrize("size", [(1, 1), (3, 7)])
@pytest.mark.parametrize("name", CONFIGS)
def test_odd_sizes(name: str, size: tuple[int, int], pool: str) -> None:
    z, old = draw(2, CHANNELS, *size), draw(2, CHANNELS, *size, seed=2)
    made = layer(replace(CONFIGS[name], pool=pool), trained=True)
    for strategy in STRATEGIES:
        out = by(strategy, made, z, old)
        assert out.shape == z.shape and torch.isfinite(out).all()


# Its parts, as in the rows of Table 5

PARTS = [parts for parts in product((False, True), repeat=3) if any(parts)]


@pytest.mark.parametrize("carrier", ["v", "z"])
@pytest.mark.parametrize(("projection", "fusion", "attention"), PARTS)
def test_each_set_of_parts_does_what_its_row_says(
    projection: bool, fusion: bool, attention: bool, carrier: str
) -> None:
    config = LayerConfig(projection, fusion, attention, carrier, residual=carrier == "v")
    made = layer(config, trained=True)
    z, old = draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)
    expected = {"project_new": projection, "project_old": projection and fusion, "fusion": fusion}
    expected |= {name: attention for name in ("squeeze", "excite", "spatial")}
    kept = {name.split(".")[0] for name, _ in made.named_parameters()}
    assert kept == {name for name, present in expected.items() if present}
    with torch.no_grad():
        new_v, old_v = (made.project_new(z), made.project_old(old)) if projection and fusion else (z, old)
        if projection and not fusion:
            new_v = made.project_new(z)
        for strategy in STRATEGIES:
            v = new_v
            if fusion and strategy != "skip":
                both = torch.cat([old_v if strategy == "concat" else torch.zeros_like(z), new_v], dim=1)
                v = torch.einsum("oi,bihw->bohw", made.fusion.weight[:, :, 0, 0], both)
                v = v + made.fusion.bias.view(1, -1, 1, 1)
            if attention:
                hidden = (v.mean((2, 3)) @ made.squeeze.weight.T).relu()
                a_ch = (hidden @ made.excite.weight.T).sigmoid()
                a_sp = (v * made.spatial.weight).sum(1)
                a_sp = (a_sp - a_sp.mean((1, 2), keepdim=True)).tanh()
                a_str = torch.einsum("bc,bhw->bchw", a_ch, a_sp)
                z_bar = v + a_str * v if carrier == "v" else z + a_str * z
            else:
                alone = carrier == "v" or not (projection or (fusion and strategy != "skip"))
                z_bar = v if alone else z + v
            torch.testing.assert_close(by(strategy, made, z, old), z_bar)


def test_there_is_a_layer_as_long_as_one_part_is_on() -> None:
    assert all(LayerConfig(*parts).enabled for parts in PARTS)
    assert not LayerConfig(False, False, False).enabled


@pytest.mark.parametrize("output", ["conv", "norm"])
def test_a_layer_that_begins_with_features_of_zero_is_refused(output: str) -> None:
    with pytest.raises(ValueError, match="all zero"):
        LayerConfig(residual=False, output=output)
    for allowed in (
        {"residual": True},
        {"residual": False, "carrier": "z"},
        {"residual": False, "projection": False},
    ):
        LayerConfig(output=output, **allowed)
    LayerConfig(residual=False, output="none")


def test_a_layer_that_adds_z_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be residual"):
        LayerConfig(attention=False, carrier="z")
    for allowed in ({"residual": False}, {"projection": False}):
        LayerConfig(attention=False, carrier="z", **allowed)


# Gradients


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_reach_every_part(name: str) -> None:
    made = layer(CONFIGS[name], trained=True)
    made(draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)).square().sum().backward()
    for key, parameter in made.named_parameters():
        assert parameter.grad is not None, key
        # a softmax or a norm undoes what some biases add: their gradient is zero up to rounding
        assert key.endswith("bias") or parameter.grad.abs().max() > 1e-8, key


def test_the_parts_that_start_at_zero_can_leave_it() -> None:
    """At the start spatial map, new projection and fusion already have gradients."""
    made = layer()
    made(draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)).pow(3).sum().backward()
    for parameter in (made.spatial.weight, made.project_new.out.weight, made.fusion.weight):
        assert parameter.grad.abs().max() > 0
    assert made.fusion.weight.grad[:, :CHANNELS].abs().max() > 0  # the old half too


def test_old_features_help_the_released_layer_leave_its_zero_norm() -> None:
    """Not at once: the map's own norm moves first, then the channels, then both projections."""
    made, z = layer(OFFICIAL, 16).train(), draw(4, 16, 4, 4)
    old, target = (draw(4, 16, 4, 4, seed=2), draw(4, 16, 4, 4, seed=3))
    optimizer = torch.optim.SGD(made.parameters(), lr=0.3, momentum=0.9)
    for _ in range(8):
        optimizer.zero_grad()
        (made(z, old) - z - target * z).square().mean().backward()
        optimizer.step()
    for norm in (made.project_new.out[1], made.project_old.out[1]):
        assert norm.weight.abs().max() > 1e-5 and norm.bias.abs().max() > 1e-5


def test_one_update_makes_old_features_count() -> None:
    made, z, old = layer(), draw(2, CHANNELS, 4, 4), draw(2, CHANNELS, 4, 4, seed=2)
    made(z, old).pow(3).sum().backward()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter -= 0.01 * parameter.grad
        assert (made(z, old) - made(z, 2 * old)).abs().max() > 1e-3


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numerical_gradients(name: str, strategy: str) -> None:
    made = layer(CONFIGS[name], channels=4, trained=True).double()
    names = [key for key, _ in made.named_parameters()]
    z, old = (draw(2, 4, 2, 3, seed=seed).double().requires_grad_() for seed in (1, 2))

    def forward(z: Tensor, old: Tensor, *values: Tensor) -> Tensor:
        arguments = (z, old if strategy == "concat" else None, strategy == "zero")
        return functional_call(made, dict(zip(names, values, strict=True)), arguments)

    assert gradcheck(forward, (z, old, *made.parameters()), fast_mode=True)


def leaf(*shape: int, seed: int = 1) -> Tensor:
    return draw(*shape, seed=seed).double().requires_grad_()


TOKENS = (leaf(2, 3, 4), leaf(2, 3, 5, seed=2), leaf(2, 6, 5, seed=3))
MAP = leaf(2, 3, 2, 2)
EQUATIONS: dict[str, list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "non_local": [(caf.non_local, TOKENS), (lambda *tokens: caf.non_local(*tokens, scaled=False), TOKENS)],
    "fuse_features": [
        (caf.fuse_features, (MAP, leaf(2, 3, 2, 2, seed=2), leaf(3, 6, 1, 1, seed=3), leaf(3, seed=4)))
    ],
    "spatial_map": [
        (caf.spatial_map, (MAP, leaf(1, 3, 1, 1, seed=2), leaf(1, seed=3))),
        (caf.spatial_map, (MAP, leaf(1, 3, 1, 1, seed=2))),
    ],
    "channel_vector": [(caf.channel_vector, (MAP, leaf(3, 3, seed=2), leaf(3, seed=3)))],
    "excited_vector": [(caf.excited_vector, (MAP, leaf(4, 3, seed=2), leaf(3, 4, seed=3)))],
    "contrast": [(caf.contrast, (leaf(2, 1, 2, 3),))],
    "at_most_one": [(caf.at_most_one, (leaf(2, 1, 2, 3),)), (lambda m: caf.at_most_one(0.1 * m), (MAP,))],
    "structured_attention": [(caf.structured_attention, (leaf(2, 3, 1, 1), leaf(2, 1, 2, 2, seed=2)))],
    "apply_attention": [(caf.apply_attention, (MAP, leaf(2, 3, 2, 2, seed=2)))],
}


def test_every_equation_is_checked() -> None:
    functions = inspect.getmembers(caf, inspect.isfunction)
    own = {name for name, function in functions if function.__module__ == caf.__name__}
    assert {name for name in own if not name.startswith("_")} == set(EQUATIONS)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, cases in EQUATIONS.items() for number in range(len(cases))]
)
def test_numerical_gradients_of_the_equations(name: str, number: int) -> None:
    function, inputs = EQUATIONS[name][number]
    assert gradcheck(function, inputs)


# By the book


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_non_local_is_a_softmax_matrix_product(scaled: bool, heads: int) -> None:
    """Also for values that are wider than the queries."""
    query, key = draw(2, 4, 6).double(), draw(2, 4, 5, seed=2).double()
    value = draw(2, 4 * heads, 5, seed=3).double()
    mixed = caf.non_local(query, key, value, scaled)
    assert mixed.shape == (2, 4 * heads, 6)
    for b in range(2):
        attention = (key[b].T @ query[b] / (2 if scaled else 1)).softmax(0)  # m x n, D = 4
        torch.testing.assert_close(mixed[b], value[b] @ attention)


@pytest.mark.parametrize("pool", ["before", "after", "none"])
@pytest.mark.parametrize("output", ["conv", "norm", "none"])
@pytest.mark.parametrize("size", [(5, 3), (1, 1)])
def test_projection_is_a_non_local_block(pool: str, output: str, size: tuple[int, int]) -> None:
    """With every choice of pooling and of its end; scaled with a residual, or unscaled without."""
    for plain in (True, False):
        config = LayerConfig(carrier="z", residual=plain, scaled=plain, pool=pool, output=output)
        torch.manual_seed(0)
        block = randomised(NonLocal(8, config)).double()
        z = draw(2, 8, *size).double()

        def pooled(x: Tensor, when: str, now: str = pool) -> Tensor:
            return nn.functional.max_pool2d(x, 2, ceil_mode=True) if now == when else x

        source = pooled(z, "before")
        key, value = (pooled(made(source), "after").flatten(2) for made in (block.phi, block.g))
        halved = (-(-size[0] // 2)) * (-(-size[1] // 2))
        assert key.shape[2] == (size[0] * size[1] if pool == "none" else halved)
        assert key.shape[1] == 4 and value.shape[1] == (8 if output == "none" else 4)
        products = torch.einsum("bdq,bdk->bqk", block.theta(z).flatten(2), key)
        attention = (products / 2 if plain else products).softmax(-1)
        v = torch.einsum("bqk,bdk->bdq", attention, value).reshape(2, -1, *size)
        v = v if output == "none" else block.out(v)
        torch.testing.assert_close(block(z), z + v if plain else v)


def test_projection_takes_any_number_of_channels_that_its_parts_divide() -> None:
    """Without an output layer the sum is read in parts, which have to fit."""
    for channels, bottleneck in product((1, 5, 6), (1, 2, 4, 9)):
        z, inner = draw(2, channels, 2, 2), max(channels // bottleneck, 1)
        for name in CONFIGS:
            config = replace(CONFIGS[name], bottleneck=bottleneck)
            if name == "paper" and channels % inner:
                with pytest.raises(UserError, match="bottleneck"):
                    NonLocal(channels, config)
            else:
                assert NonLocal(channels, config)(z).shape == z.shape


def test_fusion_adds_what_is_taken_of_old_and_new() -> None:
    old, new, bias = draw(2, 3, 2, 2), draw(2, 3, 2, 2, seed=2), draw(3, seed=3)
    weight = draw(3, 6, 1, 1, seed=4)
    halves = zip(weight[:, :, 0, 0].split(3, 1), (old, new), strict=True)
    taken = [torch.einsum("oi,bihw->bohw", half, x) for half, x in halves]
    expected = taken[0] + taken[1] + bias.view(1, 3, 1, 1)
    torch.testing.assert_close(caf.fuse_features(old, new, weight, bias), expected)


def test_spatial_map_is_the_channel_mean_of_a_convolution() -> None:
    """Eq. 1 convolves and then averages the channels: one convolution to one channel does both."""
    torch.manual_seed(0)
    omega, v = nn.Conv2d(CHANNELS, CHANNELS, 1), draw(2, CHANNELS, 3, 4)
    with torch.no_grad():
        mean = caf.spatial_map(v, omega.weight.mean(0, keepdim=True), omega.bias.mean(0, keepdim=True))
        torch.testing.assert_close(mean, omega(v).mean(1, keepdim=True))


def test_channel_vector_is_the_mean_of_a_convolution_over_places() -> None:
    """Eq. 2 convolves and then pools: pooling a 1 x 1 convolution is a linear map of the pooled map."""
    torch.manual_seed(0)
    omega, v = nn.Conv2d(CHANNELS, CHANNELS, 1), draw(2, CHANNELS, 3, 4)
    with torch.no_grad():
        vector = caf.channel_vector(v, omega.weight[:, :, 0, 0], omega.bias)
        torch.testing.assert_close(vector, omega(v).mean((2, 3), keepdim=True))


def test_excited_vector_squeezes_and_excites_the_mean() -> None:
    v, squeeze, excite = draw(2, CHANNELS, 3, 4), draw(4, CHANNELS, seed=2), draw(CHANNELS, 4, seed=3)
    for b in range(2):
        mean = v[b].flatten(1).mean(1)
        expected = (excite @ (squeeze @ mean).clamp_min(0)).sigmoid().view(-1, 1, 1)
        torch.testing.assert_close(caf.excited_vector(v, squeeze, excite)[b], expected)


@pytest.mark.parametrize("name", CONFIGS)
def test_attention_of_each_variant(name: str) -> None:
    """A_ch and A_sp, written out for each choice, and z_bar from their tensor product."""
    made = layer(CONFIGS[name], trained=True).eval()
    z, old = draw(2, CHANNELS, 3, 3), draw(2, CHANNELS, 3, 3, seed=2)
    with torch.no_grad():
        if name == "official":
            made.spatial_norm.running_mean.fill_(0.3)
            made.spatial_norm.running_var.fill_(2.0)
        v = made.fuse(z, old)
        mean = v.mean((2, 3))
        squared = v.square() if name == "official" else v
        a_sp = (squared * made.spatial.weight).sum(1, keepdim=True)
        if name == "segue":
            a_sp = (a_sp - a_sp.mean((1, 2, 3), keepdim=True)).tanh()
        else:
            a_sp = a_sp + made.spatial.bias
        if name == "official":
            norm = made.spatial_norm
            a_sp = (a_sp - 0.3) / (2.0 + norm.eps) ** 0.5 * norm.weight + norm.bias
            a_sp = a_sp / a_sp.abs().amax((1, 2, 3), keepdim=True).clamp_min(1)
        linear = name == "paper"
        a_ch = made.channel(mean) if linear else made.excite(made.squeeze(mean).relu()).sigmoid()
        torch.testing.assert_close(made.channel_attention(v), a_ch[:, :, None, None])
        torch.testing.assert_close(made.spatial_attention(v), a_sp)
        a_str = torch.einsum("bc,bhw->bchw", a_ch, a_sp[:, 0])
        torch.testing.assert_close(made.structured(v), a_str)
        carrier = z if name == "official" else v
        torch.testing.assert_close(made(z, old), (1 + a_str) * carrier)


def test_contrast_says_which_places_stand_out() -> None:
    """By hand; no constant, however large, is attention, and images have their own mean."""
    raw = torch.tensor([[0.0, 1.0, 5.0], [7.0, 7.0, 7.0]]).view(2, 1, 1, 3)
    expected = torch.tensor([[-2.0, -1.0, 3.0], [0.0, 0.0, 0.0]]).tanh().view(2, 1, 1, 3)
    torch.testing.assert_close(caf.contrast(raw), expected)
    torch.testing.assert_close(caf.contrast(raw + 64), expected)


def test_at_most_one_never_amplifies() -> None:
    maps = draw(4, 1, 3, 5) * torch.tensor([1e-9, 0.1, 10.0, 1e6]).view(4, 1, 1, 1)
    assert maps[1].abs().max() < 1 < maps[2].abs().max()
    bounded = caf.at_most_one(maps)
    assert (bounded.abs() <= maps.abs()).all()
    assert torch.equal(bounded[:2], maps[:2])
    for b in (2, 3):
        assert bounded[b].abs().max() == 1
        torch.testing.assert_close(bounded[b] * maps[b].abs().max(), maps[b])
    assert torch.equal(caf.at_most_one(torch.zeros(2, 1, 3, 3)), torch.zeros(2, 1, 3, 3))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("training", [True, False])
def test_the_released_spatial_map_stays_within_one(scale: float, training: bool) -> None:
    made, v = layer(OFFICIAL, trained=True).train(training), scale * draw(3, CHANNELS, 4, 4)
    with torch.no_grad():
        made.spatial_norm.weight.fill_(3.0)
        a_sp = made.spatial_attention(v)
    assert a_sp.abs().max() <= 1 and torch.isfinite(a_sp).all()
    assert scale < 1 or a_sp.abs().max() > 0.9


# Half precision


@pytest.mark.precision("float32")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_unscaled_products_and_squares_do_not_overflow(dtype: torch.dtype) -> None:
    query, key, value = (100 * draw(1, 16, 4, seed=seed).to(dtype) for seed in (1, 2, 3))
    assert (query.float().transpose(1, 2) @ key.float()).abs().max() > torch.finfo(torch.float16).max
    made, v = layer(OFFICIAL, trained=True).eval(), (300 * draw(2, CHANNELS, 3, 3)).to(dtype)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        mixed, a_sp = caf.non_local(query, key, value, scaled=False), made.spatial_attention(v)
    with torch.no_grad():
        exact = caf.non_local(query.double(), key.double(), value.double(), scaled=False)
        assert mixed.dtype == a_sp.dtype == torch.float32
        torch.testing.assert_close(mixed.double(), exact, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(a_sp.float(), made.spatial_attention(v.float()))


# Excitation: the weights of AD_ch


def test_frozen_excitation_is_drawn_once_and_the_same_for_both_models() -> None:
    frozen = Excitation(32, trained=False)
    assert not list(frozen.parameters())
    squeeze, excite = frozen.weights()
    assert squeeze.shape == (4, 32) and excite.shape == (32, 4) and squeeze.std() > 0 < excite.std()
    frozen.remember()
    assert frozen.weights(old=True)[0] is squeeze and frozen.weights(old=True)[1] is excite
    assert set(frozen.state_dict()) == {"squeeze", "excite"}
    assert Excitation(128, trained=False).squeeze.shape == (8, 128)  # 16 channels per hidden one


def test_trained_excitation_remembers_the_step_before() -> None:
    trained = Excitation(32, trained=True)
    assert {name for name, _ in trained.named_parameters()} == {"squeeze", "excite"}
    first = [weight.detach().clone() for weight in trained.weights()]
    with torch.no_grad():
        for weight in trained.weights():
            weight.add_(1)
    for _ in range(2):
        for now, old, drawn in zip(trained.weights(), trained.weights(old=True), first, strict=True):
            torch.testing.assert_close(now.detach(), drawn + 1)
            assert torch.equal(old, drawn) and not old.requires_grad
    trained.remember()
    for now, old in zip(trained.weights(), trained.weights(old=True), strict=True):
        assert torch.equal(now, old) and now.data_ptr() != old.data_ptr()


@pytest.mark.parametrize("variant", ["segue", "paper", "official"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_no_matrix_of_all_pairs_of_places_is_kept(variant: str, memory_format: torch.memory_format) -> None:
    """Backward needs maps of places x channels, never one of places x places."""
    made = layer(CONFIGS[variant], channels=8)
    z = draw(1, 8, 16, 16).contiguous(memory_format=memory_format).requires_grad_()
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        made(z, z.detach() * 2)
    assert sizes and max(sizes) <= 16 * 16 * 16
