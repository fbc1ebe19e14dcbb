"""What one step of a method needs: parameters, bytes and FLOPs, from dry runs of real iterations.

The step before is gone through with a few small images, so that the method has its teacher and whatever else
it keeps. Gradients count as being there all the time, as they are when a batch comes in parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from segue.core.amounts import size_text
from segue.core.config import RunConfig, TrainConfig
from segue.core.declaration import saliency_folder
from segue.core.errors import UserError
from segue.core.machine import free_memory
from segue.core.scenario import Scenario, Step
from segue.data.batches import Batch
from segue.engine.build import build_method
from segue.engine.seeds import derive_seed, seed_all
from segue.engine.train import Session, update
from segue.methods.base import Method, StepContext
from segue.plan.dry_run import DryRun
from segue.plan.needs import Footprint

PIXELS = 2**16
"""smallest number of pixels in a batch; below it the fixed cost of an iteration hides the cost of an image"""
PIXEL_BYTES = 24
"""bytes of a made-up pixel: image (3), label (8), the new classes and mask it is made from (9), rounded up"""
DRAWS = 2
"""iterations with other random numbers: a method may do a thing in a share of them"""


def footprint(session: Session, config: RunConfig, step: Step) -> Footprint:
    """Measure a method in training; its weights and state are spoilt by it."""
    method, optimizer = session.method, session.optimizer
    least = 1 if method.model.norm_frozen else 2  # batch norm needs two values
    first = max(least, PIXELS // config.train.crop**2)
    few = _dry_iterations(session, config, made_up_batch(method, step, first, config, session.device))
    draw, one = max(enumerate(few), key=lambda pair: pair[1].peak)
    session.generator.manual_seed(draw)
    more = _dry_iteration(session, config, made_up_batch(method, step, 2 * first, config, session.device))
    image = (more.peak - one.peak) // first
    flops = sum(each.flops for each in few) // len(few)
    student, teacher = _network_flops(session, config, step, first)
    trained = _trained(session)
    model = method.model
    teacher_model = None if method.teacher is None else method.teacher.model
    return Footprint(
        parameters=_count(model.parameters()),
        trainable=_count(trained),
        teacher_parameters=0 if teacher_model is None else _count(teacher_model.parameters()),
        weights=_size(_tensors(model)),
        gradients=_size(trained),
        momentum=_size(value for state in optimizer.state.values() for value in state.values()),
        teacher=_size(_tensors(teacher_model)),
        kept=_size(own_state(method).values()),
        image=image,
        shared=max(one.peak - first * image, 0),
        update=one.update,
        student_flops=student // first,
        teacher_flops=teacher // first,
        method_flops=max(flops - student - teacher, 0) // first,
    )


def step_session(config: RunConfig, scenario: Scenario, index: int, device: torch.device) -> Session:
    """A method ready to be trained in a step; the first step is trained briefly if it is a later one.

    It is not compiled: what happens in compiled parts cannot be watched.
    """
    config = replace(config, train=replace(config.train, compile=False))
    method = build_method(config, device, initial_weights=False)
    for step in scenario[: index + 1]:
        seed_all(derive_seed(config.train.seed, step.index))
        method.grow(step)
        if step.index in (0, index):
            method.model.norm_frozen = config.train.norm == "frozen" and not step.first
            method.train()
            generator = torch.Generator().manual_seed(0)
            small = made_up_batch(method, step, 2, _with_small_crop(config), device)
            context = StepContext(step, [small], device, generator)
            method.begin_step(context)
            session = Session.start(method, step, config.optim, config.train, device, generator)
            _with_gradients(session)
            update(session, small, config.optim.clip, _whole(config.train))  # makes what is made on first use
            if step.index != index:
                method.end_step(context)
    return session


def made_up_batch(method: Method, step: Step, images: int, config: RunConfig, device: torch.device) -> Batch:
    """Images of noise, half of whose pixels show the step's new classes."""
    crop, generator = config.train.crop, torch.Generator().manual_seed(0)
    needed, free = PIXEL_BYTES * images * crop**2, free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"train.crop={crop} is too large to be followed here: {images} images alone need"
            f" {size_text(needed)} of memory, and {size_text(free)} are free. Lower train.crop."
        )
    pixels = torch.randint(0, 256, (images, 3, crop, crop), dtype=torch.uint8, generator=generator)
    new = torch.randint(step.num_channels - len(step.new), step.num_channels, (images, crop, crop),
                        generator=generator)  # fmt: skip
    labels = torch.where(pixels[:, 0] < 128, new, 0)
    salient = labels > 0 if saliency_folder(method.config) is not None else None
    return Batch(pixels, labels, [str(i) for i in range(images)], salient).to(device)


def own_state(method: Method) -> dict[str, Tensor]:
    """What a method keeps in a checkpoint besides its model."""
    state = method.state_dict().items()
    return {
        name: value for name, value in state if isinstance(value, Tensor) and not name.startswith("model.")
    }


@dataclass(frozen=True)
class _Iteration:
    """Bytes beside what is there all the time, and FLOPs."""

    peak: int
    update: int
    flops: int


def _dry_iterations(session: Session, config: RunConfig, batch: Batch) -> list[_Iteration]:
    """As many as there are draws; one is enough for a method that draws nothing."""
    found = []
    for draw in range(DRAWS):
        session.generator.manual_seed(draw)
        before = session.generator.get_state()
        found.append(_dry_iteration(session, config, batch))
        if torch.equal(before, session.generator.get_state()):
            break
    return found


def _dry_iteration(session: Session, config: RunConfig, batch: Batch) -> _Iteration:
    _with_gradients(session)
    passes: list[int] = []
    with DryRun() as run:
        mark = session.optimizer.register_step_pre_hook(lambda *_: passes.append(run.lap()))
        update(session, batch, config.optim.clip, _whole(config.train))
        mark.remove()
    peak = passes[0] if passes else run.lap()  # in fp16 a step is left out where a gradient is not finite
    return _Iteration(peak, run.peak, run.flops)


def _network_flops(session: Session, config: RunConfig, step: Step, images: int) -> tuple[int, int]:
    """Of the student's passes, forward and backward, and of the teacher's."""
    method = session.method
    batch = made_up_batch(method, step, images, config, session.device)
    with DryRun() as student:
        method.model(batch.images).logits.sum().backward()
    with DryRun() as teacher:
        if method.teacher is not None:
            method.teacher(batch.images)
    session.optimizer.zero_grad(set_to_none=True)
    return student.flops, teacher.flops


def _trained(session: Session) -> list[nn.Parameter]:
    return [parameter for group in session.optimizer.param_groups for parameter in group["params"]]


def _with_gradients(session: Session) -> None:
    """Every parameter has one, even if only some iterations use it: so has its momentum."""
    for parameter in _trained(session):
        parameter.grad = torch.zeros_like(parameter)


def _whole(train: TrainConfig) -> TrainConfig:
    """Batches in one part."""
    return replace(train, accumulate=1)


def _with_small_crop(config: RunConfig) -> RunConfig:
    crop = min(config.train.crop, max(64, 4 * config.model.output_stride))
    return replace(config, train=replace(config.train, crop=crop))


def _tensors(model: nn.Module | None) -> list[Tensor]:
    return [] if model is None else [*model.parameters(), *model.buffers()]


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _size(values: Iterable[object]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, Tensor))
