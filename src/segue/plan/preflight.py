"""Before a run starts: what it will take on this machine, in one line, and a stop if memory cannot hold it.

The network goes through one iteration on paper (torch's device `meta`: shapes without numbers), which takes
a fraction of a second whatever its size. That is coarser than `segue plan`: losses and memories of a method
are not in it. So a run is stopped only where it needs clearly more than there is.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import nn

from segue.core import plugins
from segue.core.amounts import size_text, time_text
from segue.core.config import ModelConfig, RunConfig
from segue.core.errors import UserError
from segue.core.launch import this_launch
from segue.core.machine import CLEARLY, free_memory
from segue.core.progress import Display
from segue.core.scenario import Scenario
from segue.engine.build import build_scenario, check_data_fits, check_weights, open_set
from segue.engine.checkpoint import KEPT
from segue.engine.device import pick_device
from segue.methods.base import Method
from segue.models.build import build_network
from segue.models.network import Network
from segue.models.segmenter import Segmenter
from segue.plan.dry_run import DryRun
from segue.plan.gpus import UTILISATION, find_gpu

MOST = 2**50
"""bytes from which on a number says nothing more"""
MEASURED_CROP = 256
"""largest crop that is followed; larger ones need memory in proportion to their pixels"""
HALF = 0.6
"""memory and time of mixed precision, relative to single"""
CHECKPOINTED = 0.5
"""memory of gradient checkpointing, relative to none"""
TRAFFIC, BANDWIDTH = 4, 8e9
"""times that an activation is read or written in an iteration; bytes per second and core"""
PIXEL = 24
"""bytes of a test pixel beside what the network computes: image, normalised image, label"""
READING = 0.005
"""seconds that reading and augmenting an image takes on a core"""
ASKS_FOR_NUMBERS = (RuntimeError, TypeError)
"""errors of a network that computes shapes from numbers (`item`, `numpy`): on paper there are none"""
CONVOLUTION_SHARE = 0.6
"""share of the measured speed of one convolution that a whole network reaches"""


@dataclass(frozen=True)
class Need:
    """What a run needs; sizes in bytes."""

    fixed: int
    """weights, gradients, momentum, teacher"""
    image: int
    """activations of one image, and its place in waiting batches"""
    flops: int
    """floating-point operations of an image in an iteration"""
    disk: int
    at_once: int
    """images of a process at a time"""
    seen: int | None
    """images over all steps and epochs; None: the data is not at hand"""
    tested: int
    """a batch of test images that are larger than the crops; 0: they are not"""

    @property
    def memory(self) -> int:
        return self.peak(self.at_once)

    def peak(self, images: int) -> int:
        return self.fixed + images * self.image


@dataclass(frozen=True)
class Forecast:
    """What the largest of some runs will take on a device, in a sentence; or why it cannot."""

    text: str
    refused: bool


def before_run(
    recipes: Sequence[RunConfig], device: str, display: Display, network: Network | None = None
) -> None:
    """Say what the largest of these runs will take, and refuse it if it cannot fit.

    `network`: a model that is extended; otherwise the recipe's own.
    """
    found = forecast(recipes, device, "Each run" if len(recipes) > 1 else "This run", network)
    for recipe in recipes:
        if network is None and not recipe.scenario.learned:
            check_weights(recipe.model)
    if found is not None and found.refused:
        raise UserError(found.text)
    if found is not None and this_launch().rank == 0:
        display.say(found.text)


def forecast(
    recipes: Sequence[RunConfig], device: str, subject: str, network: Segmenter | None = None
) -> Forecast | None:
    """What will be needed, with the words for a run that the sentence begins with.

    None: the network cannot be followed, or the images are not known, and the run will say what is wrong.
    """
    where = pick_device(device)
    try:
        needs = [(need_of(recipe, network), recipe) for recipe in _distinct(recipes)]
    except ASKS_FOR_NUMBERS:
        return None
    need, recipe = max(needs, key=lambda pair: (pair[0].memory, pair[0].seen or 0))
    free = _free(where)
    if free is not None and need.memory > CLEARLY * free:
        return Forecast(refusal(recipe, need, free, where.type), refused=True)
    largest, tested = max(needs, key=lambda pair: pair[0].tested)
    if free is not None and largest.tested > CLEARLY * free:
        return Forecast(_test_refusal(tested, largest, free), refused=True)
    return None if need.seen is None else Forecast(_line(recipe, need, free, where, subject), refused=False)


def _distinct(recipes: Sequence[RunConfig]) -> list[RunConfig]:
    """Of recipes that differ in seeds and losses alone one is looked at."""
    alike = {}
    for recipe in recipes:
        kind, train = _kind(recipe), replace(recipe.train, seed=0)
        alike[kind.uses_teacher, kind.trains.__func__, str(recipe.model), str(train)] = recipe
    return list(alike.values())


def _kind(config: RunConfig) -> type[Method]:
    kind: type[Method] = plugins.find("method", config.method.name)
    return kind


def need_of(config: RunConfig, network: Network | None = None) -> Need:
    """What a run of this recipe needs."""
    if network is None:
        network = _of_recipe(replace(config.model, weights=None, pretrained=False))
    else:
        network = _on_paper(network)
    counts = _images(config)
    teacher = _kind(config).uses_teacher and (counts is None or len(counts[0]) > 1)
    student, flops = _iteration(network, config)
    old, old_flops = _prediction(network, config) if teacher else (0, 0)
    parameters = sum(each.nbytes for each in network.parameters())
    trained = sum(each.nbytes for each in network.parameters() if each.requires_grad)
    pixels, train = config.train.crop**2, config.train
    waiting = 4 * pixels * (2 * train.workers + 1) + 8 * pixels  # image and mask, then whole-number labels
    processes = this_launch().size
    steps = 1 if counts is None else len(counts[0])
    batch = train.batch_size if counts is None else min(train.batch_size, counts[1])
    return Need(
        fixed=parameters * (2 if teacher else 1) + 2 * trained,
        image=student + old + waiting,
        flops=flops + old_flops,
        disk=(min(steps, KEPT + 1) + KEPT + 1) * parameters + (KEPT + 1) * trained,
        at_once=math.ceil(math.ceil(batch / train.accumulate) / processes),
        seen=None if counts is None else _seen(config, *counts),
        tested=math.ceil(batch / processes) * _test_image(network, config, counts),
    )


def _test_image(network: Network, config: RunConfig, counts: tuple[Scenario, int] | None) -> int:
    """Bytes of a test image that is larger than the crops, with its scores at full size."""
    size = config.test_size
    if size is None or size <= config.train.crop:
        return 0
    channels = 1 + len(counts[0].classes.ids) if counts is not None else 1
    crop = min(size, MEASURED_CROP)
    return size**2 * _seen_at(network, crop)[0] // crop**2 + size**2 * (PIXEL + 4 * channels)


def _of_recipe(config: ModelConfig) -> Network:
    """The network of a recipe, on paper; the parts of one of another library are found by numbers first."""
    if config.network is not None:
        return _on_paper(build_network(config))
    with torch.device("meta"):
        return Segmenter(config)


def _on_paper(network: Network) -> Network:
    """A network's shapes without its numbers; the network itself stays as it is."""
    paper = copy.deepcopy(network).to("meta").requires_grad_(True)
    paper.freeze_stages(paper.config.frozen_stages, paper.config.frozen_blocks)
    return paper


def _images(config: RunConfig) -> tuple[Scenario, int] | None:
    """Steps and training images, without a look into the masks; what is wrong with them the run will say."""
    check_data_fits(config)
    try:
        dataset = open_set(config, "train")
        return build_scenario(config, dataset)[0], len(dataset)
    except UserError:
        return None


def _seen(config: RunConfig, scenario: Scenario, images: int) -> int:
    """Images of all epochs, if those of a step are in proportion to its new classes; all that extend."""
    learned, classes, kind = config.scenario.learned, len(scenario.classes.ids), _kind(config)
    return sum(
        (images if learned else round(images * len(step.new) / classes)) * config.train.epochs_of(step.index)
        for step in scenario
        if step.index >= learned and kind.trains(step)
    )


def _iteration(network: Network, config: RunConfig) -> tuple[int, int]:
    """Bytes and FLOPs of an image in training."""
    crop, scale = _measured_crop(config)
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)  # counted apart
    network.train()
    with DryRun(large=math.inf) as run:
        _features(network, crop).sum().backward()
    share = 1.0 if config.train.precision == "fp32" else HALF
    share *= CHECKPOINTED if config.train.checkpointing else 1.0
    return int(scale * share * run.peak / 2), int(scale * run.flops / 2)


def _prediction(network: Network, config: RunConfig) -> tuple[int, int]:
    """Bytes and FLOPs of an image that the teacher sees."""
    crop, scale = _measured_crop(config)
    memory, flops = _seen_at(network, crop)
    return int(scale * memory), int(scale * flops)


def _seen_at(network: Network, side: int) -> tuple[int, int]:
    """Bytes and FLOPs of a square image that is seen, and not learned from."""
    network.eval()
    with torch.no_grad(), DryRun(large=math.inf) as run:
        _features(network, side)
    return run.peak // 2, run.flops // 2


def _measured_crop(config: RunConfig) -> tuple[int, float]:
    """A crop of moderate size, and how many times its pixels the recipe's crop has."""
    crop = min(config.train.crop, MEASURED_CROP)
    return crop, config.train.crop**2 / crop**2


def _features(network: Network, crop: int) -> torch.Tensor:
    """Of two images, which batch norm needs; the classifier, which may have no channels yet, is small."""
    return network.refined(torch.empty(2, 3, crop, crop, dtype=torch.uint8, device="meta"))


def _free(device: torch.device) -> int | None:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()


def refusal(config: RunConfig, need: Need, free: int, device: str) -> str:
    """Which number is too large, and what to lower."""
    train, batch = config.train, need.at_once
    what = f"{batch} images of {train.crop} x {train.crop} pixels at a time in {config.model.backbone}"
    remedies = []
    part = (free - need.fixed) // need.image
    if part >= 2:  # batch norm needs two
        remedies.append(f"train.accumulate={train.accumulate * math.ceil(batch / part)}")
    side = math.isqrt(max(free - need.fixed, 0) * train.crop**2 // (batch * need.image)) // 32 * 32
    if side >= 32:
        remedies.append(f"train.crop={side}")
    fit = f"{' or '.join(remedies)} would fit" if remedies else "Take a smaller model.backbone"
    memory = "on the GPU" if device == "cuda" else "here"
    return (
        f"Training would need {_about(need.memory)} of memory ({what}), but {size_text(free)} are free"
        f" {memory}. {fit}. The preset for small machines: preset=laptop."
    )


def check_test(config: RunConfig, device: str) -> None:
    """Refuse a test alone that memory cannot hold; one at the size of the crops needs less than training."""
    if config.test_size is None or config.test_size <= config.train.crop:
        return
    free = _free(pick_device(device))
    with suppress(*ASKS_FOR_NUMBERS):
        need = need_of(config)
        if free is not None and need.tested > CLEARLY * free:
            raise UserError(_test_refusal(config, need, free))


def _test_refusal(config: RunConfig, need: Need, free: int) -> str:
    size = config.test_size
    return (
        f"Tests would need {_about(need.tested)} of memory (batches of images of {size} x {size} pixels:"
        f" eval.size), but {size_text(free)} are free. Lower eval.size, or train.batch_size."
    )


def _about(size: int) -> str:
    return f"about {size_text(size)}" if size < MOST else f"more than {size_text(MOST)}"


def _line(config: RunConfig, need: Need, free: int | None, device: torch.device, subject: str) -> str:
    seconds = _seconds(config, need, device)
    took = "" if seconds is None else f"{_roughly(seconds)} of training on this {device.type}, "
    memory = f"about {size_text(need.memory)} of memory beside torch itself"
    memory += "" if free is None else f" ({size_text(free)} free)"
    tight = " Memory is tight." if free is not None and need.memory > free else ""
    return f"{subject} will take {took}{memory}, {size_text(need.disk)} of disk.{tight}"


def _roughly(seconds: float) -> str:
    return "less than a minute" if seconds < 60 else f"roughly {time_text(seconds)}"


def _seconds(config: RunConfig, need: Need, device: torch.device) -> float | None:
    """Time of training; None where the images or the speed of the device are not known."""
    if need.seen is None or device.type == "mps":
        return None
    if device.type == "cuda":
        try:
            gpu = find_gpu(torch.cuda.get_device_name(device))
        except UserError:
            return None
        return need.seen * need.flops / (UTILISATION * gpu.peak(config.train.precision)[0])
    cores = torch.get_num_threads()
    image = need.flops / (CONVOLUTION_SHARE * _speed())
    image += (TRAFFIC * need.image / BANDWIDTH + READING) / cores
    return need.seen * image


def _speed() -> float:
    """FLOPs a second of a convolution on this CPU, with all of torch's threads."""
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    image = torch.zeros(1, 64, 64, 64)
    times = []
    with torch.no_grad():
        for _ in range(4):
            began = time.perf_counter()
            layer(image)
            times.append(time.perf_counter() - began)
    return 2 * 64 * 64 * 64 * 64 * 9 / min(times)
