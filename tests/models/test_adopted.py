"""Adopted networks: found by proof, the same answers as before, and room for more classes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from foreign_networks import (
    CLASSES,
    MEAN,
    NETWORKS,
    STD,
    OwnUNet,
    lively,
    network,
    normalised,
    pictures,
    smp_network,
)  # fmt: skip
from torch import Tensor, nn

import segue
from segue.core import plugins
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.losses import upsample
from segue.methods.finetune import FineTune
from segue.models.adopted import trees
from segue.models.adopted.find import find_parts
from segue.models.adopted.network import AdoptedNetwork
from segue.testing import check_network

SECOND = Step(1, (4, 5), (1, 2, 3))
EXPECTED = {
    "torchvision DeepLabV3": (["classifier.4"], None, "backbone", "out", "bilinear", 1),
    "torchvision FCN": (["classifier.4"], "classifier.3", "backbone", "out", "bilinear", 1),
    "torchvision LRASPP": (
        ["classifier.low_classifier", "classifier.high_classifier"], None, "backbone", "high", "bilinear", 1,
    ),
    "smp Unet": (["segmentation_head.0"], None, "encoder", "5", "bilinear", 1),
    "smp FPN": (["segmentation_head.0"], "decoder.dropout", "encoder", "5", "aligned", 32),
    "smp DeepLabV3Plus": (["segmentation_head.0"], None, "encoder", "5", "aligned", 16),
    "smp Segformer": (["segmentation_head.0"], None, "encoder", "5", "aligned", 32),
    "smp DPT": (["segmentation_head.head.4"], "segmentation_head.head.3", "encoder", "0.3", "aligned", 32),
    "hf SegFormer": (
        ["decode_head.classifier"], "decode_head.dropout", "segformer", "last_hidden_state", "bilinear", 1,
    ),
    "hf UperNet": (["decode_head.classifier"], None, "backbone", "feature_maps.3", "bilinear", 1),
    "hf DPT": (
        ["head.head.4"], "head.head.3", "neck.reassemble_stage.layers.3", "", "aligned", 32,
    ),
    "hf MobileViT": (
        ["segmentation_head.classifier.convolution"], "segmentation_head.dropout", "mobilevit",
        "last_hidden_state", "bilinear", 1,
    ),
    "own U-Net": (["out"], None, "third", "", "bilinear", 4),
}  # fmt: skip
"""classifiers, dropout before them, encoder, place of z, resizing, divisor of sizes"""


def adopted(module: nn.Module, **named: object) -> AdoptedNetwork:
    found = segue.adopt(module, CLASSES, MEAN, STD, **named).network
    assert isinstance(found, AdoptedNetwork)
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_parts_are_found(name: str) -> None:
    parts = find_parts(network(name))
    found = parts.classifiers, parts.before, parts.encoder, parts.place, parts.resize, parts.divisor
    assert found == EXPECTED[name]
    assert {row for row, _ in parts.told} >= {"classifier", "h", "z", "answer"}


@pytest.mark.parametrize("name", NETWORKS)
def test_answers_are_those_of_the_original(name: str) -> None:
    """On every pixel; and with new channels that never win, bit-equal old rows give the old classes."""
    module, images = network(name), pictures()
    ours = adopted(module)
    with torch.no_grad():
        theirs = trees.logits_of(module(normalised(images)))
        assert theirs is not None
        here = upsample(ours(images).logits, theirs.shape[-2:], ours.resize)
        assert (here - theirs).abs().max() <= 1e-4 * theirs.abs().max()
        for layer, path in zip(ours.classifier.layers, ours.parts.classifiers, strict=True):
            assert torch.equal(layer.parts[0].weight, module.get_submodule(path).weight)
        ours.grow(SECOND, balanced=False)
        for layer in ours.classifier.layers:
            layer.parts[1].weight.zero_()
            layer.parts[1].bias.fill_(-1e4)
        grown = upsample(ours(images).logits, theirs.shape[-2:], ours.resize)
    assert grown.shape[1] == 6
    best, second = theirs.topk(2, dim=1).values.unbind(1)
    sure = best - second > 1e-3 * theirs.abs().max()  # elsewhere rounding decides
    assert (grown.argmax(1) == theirs.argmax(1))[sure].all() and sure.float().mean() > 0.9


@pytest.mark.parametrize("name", NETWORKS)
def test_contract(name: str) -> None:
    check_network(adopted(network(name)), size=32 if name == "torchvision LRASPP" else 64)


def test_contract_of_a_method_that_trains_in_step_0_alone() -> None:
    check_network(adopted(network("own U-Net")), size=32, methods=["acil"])


def test_the_users_module_stays_as_it_was() -> None:
    module = network("own U-Net")
    before = copy.deepcopy(module)
    ours = adopted(module)
    check_network(ours, methods=["finetune"])
    assert type(module.out) is nn.Conv2d and not module.third._forward_hooks
    for name, value in before.state_dict().items():
        assert torch.equal(value, module.state_dict()[name])


def test_balanced_channels_share_the_probability_of_background() -> None:
    for name in ("smp Unet", "torchvision LRASPP"):  # a 3 x 3 kernel, and a sum of two classifiers
        ours, images = adopted(network(name)), pictures()
        with torch.no_grad():
            before = ours(images).logits.softmax(1)
            ours.grow(SECOND, balanced=True)
            after = ours(images).logits.softmax(1)
        assert torch.allclose(after[:, 1:4], before[:, 1:4], atol=1e-5)
        assert torch.allclose(after[:, [0, 4, 5]].sum(1), before[:, 0], atol=1e-5)


def test_single_places_count_as_if_their_surroundings_were_the_same() -> None:
    classifier = adopted(network("smp Unet")).classifier
    places = torch.randn(5, classifier.in_channels, generator=torch.Generator().manual_seed(0))
    everywhere = places[:, :, None, None].expand(-1, -1, 5, 5)
    with torch.no_grad():
        assert torch.allclose(classifier.at_places(places), classifier(everywhere)[:, :, 2, 2], atol=1e-5)


def test_dropout_leaves_h_alone_and_still_drops() -> None:
    ours, images = adopted(network("torchvision FCN")).train(), pictures()
    ours.norm_frozen = True
    ours.train()
    with torch.no_grad():
        one, two = ours(images), ours(images)
    assert torch.equal(one.features["h"], two.features["h"])
    assert not torch.equal(one.logits, two.logits)


@pytest.mark.parametrize(("height", "width"), [(64, 96), (45, 71)])
def test_sizes_that_the_network_does_not_take_are_padded_and_cut(height: int, width: int) -> None:
    ours, images = adopted(network("smp FPN")), pictures(height, width, 1)
    with torch.no_grad():
        logits = ours(images).logits
        padded = F.pad(images.float(), (0, -width % 32, 0, -height % 32), mode="replicate")
        whole = upsample(ours(padded).logits, padded.shape[-2:], "aligned")[..., :height, :width]
    assert torch.allclose(upsample(logits, (height, width), "aligned"), whole, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(18, 24), (40, 20), (1, 1)])
def test_images_that_are_too_small_for_the_network_are_padded_and_cut(height: int, width: int) -> None:
    """SegFormer's attention takes maps of 8 x 8 and larger at stride 4."""
    ours, images = adopted(network("hf SegFormer")), pictures(height, width, 1)
    assert ours.parts.least == 32 and "least side" in dict(ours.parts.told)
    with torch.no_grad():
        logits = ours(images).logits
        padded = F.pad(images.float(), (0, max(0, 32 - width), 0, max(0, 32 - height)), mode="replicate")
        whole = upsample(ours(padded).logits, padded.shape[-2:], "bilinear")[..., :height, :width]
    assert torch.allclose(upsample(logits, (height, width), "bilinear"), whole, atol=1e-4)


def test_auxiliary_heads_are_dropped() -> None:
    module = network("torchvision DeepLabV3")
    assert module.aux_classifier is not None
    ours = adopted(module)
    assert ours.body.aux_classifier is None
    assert not adopted(network("hf UperNet")).body.config.use_auxiliary_head


def test_parts_of_a_network_that_its_answer_does_not_need_are_not_trained() -> None:
    module = network("own U-Net")
    module.never = nn.Conv2d(3, 3, 1)
    ours = adopted(module)
    assert ours.parts.unused == ["never"]
    assert not any(parameter.requires_grad for parameter in ours.body.never.parameters())


# One channel, other inputs, other orders


def test_one_channel_becomes_two() -> None:
    module = lively(smp_network("Unet", classes=1, activation="sigmoid", decoder_channels=(16, 16, 8, 8, 8)))
    images = pictures()
    model = segue.adopt(module, ["cat"], MEAN, STD)
    with torch.no_grad():
        theirs, ours = module(normalised(images)), model.network(images).logits
        assert torch.allclose(ours.softmax(1)[:, 1:], theirs, atol=1e-4)
        stricter = segue.adopt(module, ["cat"], MEAN, STD, threshold=0.8).network(images).logits
        assert torch.equal((stricter.argmax(1) == 1), (stricter.softmax(1)[:, 1] > 0.5))
        far = (theirs[:, 0] - 0.8).abs() > 1e-4
        assert torch.equal((stricter.argmax(1) == 1)[far], (theirs[:, 0] > 0.8)[far])
    assert model.classes == ("background", "cat")


def test_background_comes_first_wherever_it_was() -> None:
    module, images = network("own U-Net"), pictures()
    names = ["cat", "dog", "sky", "cow"]
    model = segue.adopt(module, names, MEAN, STD, background="sky")
    assert model.classes == ("sky", "cat", "dog", "cow")
    with torch.no_grad():
        theirs, ours = module(normalised(images)), model.network(images).logits
        again = model.network.own_module()(normalised(images))
    assert torch.allclose(ours, theirs[:, [2, 0, 1, 3]], atol=1e-4)
    assert torch.allclose(again, theirs, atol=1e-4)


def test_without_a_background_the_channel_in_front_is_never_the_answer() -> None:
    for name in ("own U-Net", "torchvision LRASPP"):
        module, images = network(name), pictures()
        model = segue.adopt(module, ["cat", "dog", "sky", "cow"], MEAN, STD)
        ours = model.network
        assert model.closed and ours.closed and model.classes == ("background", "cat", "dog", "sky", "cow")
        ours.grow(Step(1, (5,), (1, 2, 3, 4)), balanced=True)
        assert ours.classifier.sizes == (5, 1)
        with torch.no_grad():
            out = ours(images)
            theirs = trees.logits_of(module(normalised(images)))
            again = trees.logits_of(ours.own_module()(normalised(images)))
        assert theirs is not None and again is not None and again.shape[1] == 5
        logits = upsample(out.logits, theirs.shape[-2:])
        assert (logits[:, 0] < -9e3).all() and torch.allclose(logits[:, 1:5], theirs, atol=1e-4)
        assert torch.allclose(again[:, :4], theirs, atol=1e-4)
        if name == "own U-Net":  # 1 x 1: places by themselves
            h = out.features["h"][0].flatten(1).t()
            places = ours.classifier.at_places(h).t().unflatten(1, out.logits.shape[-2:])
            assert torch.allclose(places, out.logits[0], atol=1e-4)


def test_contract_without_a_background() -> None:
    """Of all methods those are tried that do without a background and without a classifier of their own."""
    ours = segue.adopt(network("own U-Net"), ["cat", "dog", "sky", "cow"], MEAN, STD).network
    tried = [name for name in plugins.names("method") if plugins.find("method", name).needs <= ours.offers]
    assert {"finetune", "mib", "lwf", "incseg", "caf", "ilt", "ewc"} <= set(tried)
    assert not {"lwf_mc", "plop", "mbs", "sdr", "ssul", "dkd", "star", "acil", "rcil"} & set(tried)
    check_network(ours, methods=[name for name in tried if name != "dft"])  # it moves nothing but new rows


def without_bias() -> AdoptedNetwork:
    module = lively(OwnUNet())
    module.out = nn.Conv2d(8, len(CLASSES), 1, bias=False)
    return adopted(module)


def test_a_classifier_without_bias_keeps_its_rows() -> None:
    ours, images = without_bias(), pictures()
    with torch.no_grad():
        before, rows = ours(images).logits, ours.classifier.parts[0].weight.clone()
        ours.grow(Step(1, (4,), (1, 2, 3)), balanced=False)
        after = ours(images).logits
    assert torch.equal(ours.classifier.parts[0].weight, rows) and torch.equal(after[:, :4], before)
    after[:, 4:] = -1e4
    assert torch.equal(after.argmax(1), before.argmax(1))


@pytest.mark.parametrize("balanced", [True, False])
def test_new_classes_without_bias_begin_as_background(balanced: bool) -> None:
    """Of the network's own accord, or because MBS asks for it."""
    kind = plugins.find("method", "mbs")
    method = kind(kind.Config(), without_bias())
    if balanced:
        method.model.grow(SECOND, balanced=True)
    else:
        method.grow(SECOND)
    first, new = method.model.classifier.parts
    assert new.bias is None and torch.equal(new.weight, first.weight[:1].expand_as(new.weight))


def test_methods_that_need_a_background_say_so() -> None:
    from segue.methods.lwf_mc import LwFMC

    ours = segue.adopt(network("own U-Net"), ["cat", "dog", "sky", "cow"], MEAN, STD).network
    with pytest.raises(UserError, match="needs a channel of background"):
        LwFMC(LwFMC.Config(), ours)


def test_blue_first_and_white_of_255() -> None:
    module, images = network("own U-Net"), pictures()
    mean, std = [100.0, 110.0, 120.0], [1.0, 2.0, 3.0]
    ours = segue.adopt(module, CLASSES, mean, std, white=255, bgr=True).network
    numbers = [torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std)]
    with torch.no_grad():
        theirs = module((images.flip(1) - numbers[0]) / numbers[1])
        assert torch.allclose(ours(images).logits, theirs, rtol=1e-4, atol=1e-3)


def test_softmax_at_the_end_is_left_out() -> None:
    ours, images = adopted(lively(OwnUNet(ending=lambda logits: logits.softmax(1)))), pictures()
    with torch.no_grad():
        logits = ours(images).logits
    assert logits.min() < 0 and dict(ours.parts.told)["answer"].endswith("softmax")


# Refused


class Ensemble(nn.Module):
    """Two networks whose classifiers are not the end."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = OwnUNet(), OwnUNet()

    def forward(self, images: Tensor) -> Tensor:
        return self.one(images).square() * self.two(images)


class Masks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = OwnUNet()

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images).argmax(1)


@pytest.mark.parametrize(
    ("module", "named", "words"),
    [
        (Ensemble, {}, ["cannot be proven", "one.out, two.out", "classifier='PATH'"]),
        (Masks, {}, ["Masks answers with a tensor of shape", "map of scores"]),
        (lambda: OwnUNet(ending=torch.sigmoid), {}, ["sigmoid over 4 channels", "multilabel"]),
        (OwnUNet, {"classifier": "third.0"}, ["'third.0' is no convolution with 4 outputs", "out"]),
        (OwnUNet, {"encoder": "out"}, ["'out' hands out no map"]),
        (OwnUNet, {"features": "first"}, ["'first' does not hand out the map that the classifier out sees"]),
        (OwnUNet, {"classes": ["background", "cat"]}, ["4 channels and 2 classes"]),
        (OwnUNet, {"classes": ["a", "unlabeled", "bg", "d"]}, ["unlabeled or bg", "background='unlabeled'"]),
        (OwnUNet, {"background": "catt"}, ["no class 'catt'", "Did you mean 'cat'?"]),
        (OwnUNet, {"classes": ["background", "a", "a", "b"]}, ["Two channels are called 'a'"]),
        (OwnUNet, {"mean": [120.0] * 3}, ["white=255"]),
        (OwnUNet, {"std": [0.0] * 3}, ["std is [0.0, 0.0, 0.0]"]),
        (OwnUNet, {"threshold": 0.3}, ["threshold (0.3)"]),
        (lambda: nn.Linear(3, 4), {}, ["cannot be run on an image"]),
    ],
)
def test_refusals(module: type[nn.Module], named: dict[str, object], words: list[str]) -> None:
    torch.manual_seed(0)
    with pytest.raises(UserError) as error:
        segue.adopt(lively(module()), **{"classes": CLASSES, "mean": MEAN, "std": STD, **named})
    assert all(word in str(error.value) for word in words), str(error.value)


def test_methods_say_what_they_miss() -> None:
    from segue.methods.plop import PLOP
    from segue.methods.rcil import RCIL

    ours = adopted(network("own U-Net"))
    for kind, word in ((PLOP, "stages"), (RCIL, "a backbone of Segue's own")):
        with pytest.raises(UserError, match=word):
            kind(kind.Config(), ours)


def test_a_part_that_no_network_has_is_refused_by_its_name() -> None:
    class Wrong(FineTune):
        needs = frozenset({"h", "wings"})

    with pytest.raises(UserError, match="Wrong needs 'wings' of a network"):
        Wrong(Wrong.Config(), adopted(network("own U-Net")))


def test_what_cannot_be_sped_up_is_refused() -> None:
    ours = adopted(network("own U-Net"))
    for speed_up in (ours.checkpoint, ours.compile):
        with pytest.raises(UserError, match="leave it out"):
            speed_up()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_begins_where_the_network_was(name: str) -> None:
    """In training, with norms as they were and nothing dropped, the network answers as in a test."""
    model = segue.adopt(network(name), CLASSES, MEAN, STD).network
    for module in model.modules():
        for chance in ("p", "drop_prob"):  # of dropout, and of leaving out whole blocks
            if hasattr(module, chance):
                setattr(module, chance, 0.0)
    with torch.no_grad():
        expected = model.eval()(pictures()).logits
        model.norm_frozen = True
        found = model.train()(pictures()).logits
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
