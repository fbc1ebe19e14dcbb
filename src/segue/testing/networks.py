"""The contract of a network, for anyone who adopts one: `check_network(segue.adopt(module, ...).network)`.

Random pictures and one iteration of a few methods, some seconds. A broken promise is an AssertionError that
says which.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace

import torch

from segue.core import plugins
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.engine.learned import Learned, begin_with
from segue.engine.seeds import seed_all
from segue.engine.train import Session, update
from segue.methods.base import Method, StepContext
from segue.models.adopted.network import AdoptedNetwork
from segue.models.build import build_network, network_from_spec
from segue.models.network import Network
from segue.models.segmenter import Teacher
from segue.testing.methods import CPU, OPTIM, ROUNDING, TRAIN


def check_network(
    network: Network, size: int = 64, methods: Sequence[str] = ("finetune", "mib", "caf")
) -> None:
    """Check every promise of a network that has its first channels, on pictures of `size` x `size` pixels.

    Every method is tried that finds what it needs. The network itself stays as it is.

    Examples:
        >>> import segue
        >>> from segue.testing import check_network
        >>> check_network(segue.load("model.safetensors", device="cpu").network)
    """
    pictures = torch.randint(0, 256, (2, 3, size, size), generator=torch.Generator().manual_seed(0))
    images = pictures.to(torch.uint8)
    with torch.no_grad():
        check_maps(copy.deepcopy(network).eval(), images)
        check_growing(copy.deepcopy(network).eval(), images)
        check_copies(network, images)
    for name in methods:
        kind: type[Method] = plugins.find("method", name)
        if kind.needs <= network.offers:
            check_training(kind, copy.deepcopy(network), images)


def check_maps(network: Network, images: torch.Tensor) -> None:
    """Logits cover the image; h and z are what they are called; odd sizes are taken."""
    out = network(images)
    for name, width in (("h", network.h_channels), ("z", network.z_channels)):
        if name in network.offers:
            assert out.features[name].shape[1] == width, f"{name} has not the {width} channels that are told"
    _check_close(network.classified(out.features["h"], images), out.logits, "the classifier on h", "logits")
    _check_close(network.refined(images), out.features["h"], "refined()", "h")
    if "z" in network.offers:
        _check_close(network.encode(images)[-1], out.features["z"], "the last map of encode()", "z")
        again = network.refine(out.features["z_fused"], images)
        _check_close(again, out.features["h"], "refine() of z_fused", "h")
    odd = network(images[..., :-19, :-6])
    assert odd.logits.shape[:2] == out.logits.shape[:2], "an image of an odd size gives other channels"


def check_growing(network: Network, images: torch.Tensor) -> None:
    """Channels are added without a change to those that are there, bit for bit."""
    before, logits = copy.deepcopy(network.state_dict()), network(images).logits
    channels = logits.shape[1]
    network.grow(Step(1, (channels, channels + 1), tuple(range(1, channels))), balanced=False)
    after = network.state_dict()
    for name, value in before.items():
        assert torch.equal(value, after[name]), f"growing changed {name}"
    grown = network(images).logits
    assert grown.shape[1] == channels + 2, "two classes are not two channels"
    assert torch.equal(grown[:, :channels], logits), "growing changed the logits of old channels"
    for name, parameter in network.classifier.parts[-1].named_parameters():
        parameter.fill_(-1e4 if name.endswith("bias") else 0.0)
    if any(name.endswith("bias") for name, _ in network.classifier.parts[-1].named_parameters()):
        same = network(images).logits.argmax(1) == logits.argmax(1)
        assert same.all(), "channels that never win change the answer"


def check_copies(network: Network, images: torch.Tensor) -> None:
    """A teacher says the same; so does the network that its spec describes, with its weights."""
    logits = copy.deepcopy(network).eval()(images).logits
    _check_close(Teacher(copy.deepcopy(network))(images).logits, logits, "a teacher", "the network")
    source = (network.config.network or {}).get("source", {})
    if source.get("kind") not in ("module", "python"):  # code of somebody's own
        again = network_from_spec(json.loads(json.dumps(network.spec())))
        again.load_state_dict(network.state_dict(), strict=True)
        _check_close(again.eval()(images).logits, logits, "the network that the spec describes", "this one")


def check_training(kind: type[Method], network: Network, images: torch.Tensor) -> None:
    """A step with a new class: one iteration, where the method trains in such a step, and its end."""
    seed_all(0)
    method = _with_what_it_learned(kind, network)
    channels = sum(network.classifier.sizes)
    step = Step(method.step.index + 1, (channels,), tuple(range(1, channels)))
    method.grow(step)
    method.model.norm_frozen = True
    method.train()
    labels = torch.zeros(len(images), *images.shape[-2:], dtype=torch.long)
    labels[:, ::2, : images.shape[-1] // 2] = channels
    batch, generator = Batch(images, labels, ["a", "b"]), torch.Generator().manual_seed(0)
    context = StepContext(step, [batch], CPU, generator)
    method.begin_step(context)
    if kind.trains(step):
        _check_iteration(method, step, batch, generator)
    method.end_step(context)
    with torch.no_grad():
        logits = method.eval().model(images).logits
    assert logits.shape[1] == channels + 1, f"{kind.__name__}: a new class is no channel after its step"
    assert torch.isfinite(logits).all(), f"{kind.__name__}: logits are not finite after the step"


def _check_iteration(method: Method, step: Step, batch: Batch, generator: torch.Generator) -> None:
    """Finite losses; encoder, head and classifier move."""
    network, name_of = method.model, type(method).__name__
    session = Session.start(method, step, OPTIM, TRAIN, CPU, generator)
    trained = [id(parameter) for group in session.optimizer.param_groups for parameter in group["params"]]
    assert len(trained) == len(set(trained)), "a parameter is in two groups of the optimiser"
    parts = {"encoder": network.encoder_parameters(), "head": network.head_parameters()}
    parts["classifier"] = list(network.classifier.parts[-1].parameters())
    parts = {name: [p for p in parameters if p.requires_grad] for name, parameters in parts.items()}
    before = {name: [p.detach().clone() for p in parameters] for name, parameters in parts.items()}
    losses = update(session, batch, OPTIM.clip, TRAIN)
    for name, value in losses.items():
        assert torch.isfinite(torch.as_tensor(value)).all(), f"{name_of}: the term '{name}' is {value}"
    for name, parameters in parts.items():
        moved = any(not torch.equal(a, b) for a, b in zip(before[name], parameters, strict=True))
        assert moved or not parameters, f"{name_of} moves no parameter of the {name}"


def _with_what_it_learned(kind: type[Method], network: Network) -> Method:
    """A method around a new network of this kind that has grown as far and has its weights, as in a run."""
    module = network.plain_module() if isinstance(network, AdoptedNetwork) else None
    config = replace(network.config, weights=None, pretrained=False)
    method, known = kind(kind.Config(), build_network(config, module)), 1
    for index, size in enumerate(network.classifier.sizes):
        new = size - 1 if index == 0 else size
        method.grow(Step(index, tuple(range(known, known + new)), tuple(range(1, known))))
        known += new
    known_names = method.model.state_dict()  # the fusion layer of one method is not that of another
    weights = {name: value for name, value in network.state_dict().items() if name in known_names}
    begin_with(method, Learned(weights, {}, "the network"))
    return method


def _check_close(ours: torch.Tensor, theirs: torch.Tensor, what: str, other: str) -> None:
    assert ours.shape == theirs.shape, f"{what} has shape {tuple(ours.shape)}, {other} {tuple(theirs.shape)}"
    bound = ROUNDING * max(1.0, float(theirs.abs().max()))
    assert (ours - theirs).abs().max() <= bound, f"{what} differs from {other}"
