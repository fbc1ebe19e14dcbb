"""What a run will need, on paper: FLOPs, memory, disk and hours, from what was measured of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from segue.plan.gpus import Gpu

USABLE = 0.9
"""share of a GPU's memory that tensors can have: the rest is for CUDA itself, its workspaces and gaps"""


@dataclass(frozen=True)
class Footprint:
    """What a method needs at one step. Sizes are bytes; FLOPs are those of one image in an iteration."""

    parameters: int
    """parameters of the student"""
    trainable: int
    teacher_parameters: int
    weights: int
    """the student's parameters and statistics"""
    gradients: int
    momentum: int
    teacher: int
    kept: int
    """state that the method keeps, such as prototypes or importances"""
    image: int
    """activations of an iteration, per image"""
    shared: int
    """further memory of an iteration, whatever the number of images"""
    update: int
    """further memory of the optimiser, when activations are freed"""
    student_flops: int
    """forward and backward"""
    teacher_flops: int
    method_flops: int
    """the rest: the method's own"""

    @property
    def fixed(self) -> int:
        return self.weights + self.gradients + self.momentum + self.teacher + self.kept

    @property
    def flops(self) -> int:
        return self.student_flops + self.teacher_flops + self.method_flops

    def activations(self, images: int) -> int:
        return max(self.shared + images * self.image, self.update)

    def peak(self, images: int, processes: int = 1) -> int:
        """Most bytes at a time, with so many images at once; processes exchange copies of the gradients."""
        return self.fixed + (self.gradients if processes > 1 else 0) + self.activations(images)


@dataclass(frozen=True)
class StepPlan:
    """One step."""

    index: int
    channels: int
    images: int
    iterations: int
    batch: int
    """images in an iteration"""
    footprint: Footprint

    @property
    def flops(self) -> int:
        return self.iterations * self.batch * self.footprint.flops


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    title: str
    network: str
    images_from: str
    """source of the numbers of images"""
    precision: str
    crop: int
    accumulate: int
    checkpointing: bool
    processes: int
    steps: tuple[StepPlan, ...]
    finished_bytes: int
    """size of a checkpoint of a finished step"""
    inside_bytes: int
    """size of a resume point inside a step, with momentum"""
    kept_checkpoints: int
    """number of checkpoints kept of each kind"""
    records_bytes: int
    model_bytes: int
    """size of an exported model"""

    @property
    def flops(self) -> int:
        return sum(step.flops for step in self.steps)

    @property
    def kept_finished(self) -> int:
        """Checkpoints of finished steps that stay: the last ones, and step 0, from where others may start."""
        return min(len(self.steps), self.kept_checkpoints + 1)

    @property
    def disk(self) -> int:
        """Most bytes at a time, inside the last step: a new checkpoint is whole before the oldest goes."""
        checkpoints = min(self.kept_finished, len(self.steps) - 1) * self.finished_bytes
        checkpoints += (self.kept_checkpoints + 1) * self.inside_bytes
        return checkpoints + self.records_bytes

    @property
    def largest(self) -> StepPlan:
        """The step that needs the most memory; of equal ones the last."""
        return max(reversed(self.steps), key=lambda step: self.memory(step, self.accumulate))

    def at_once(self, step: StepPlan, accumulate: int) -> int:
        """Images that a process has at a time."""
        return ceil(ceil(step.batch / accumulate) / self.processes)

    def memory(self, step: StepPlan, accumulate: int) -> int:
        return step.footprint.peak(self.at_once(step, accumulate), self.processes)

    def peak(self, accumulate: int | None = None) -> int:
        """Most bytes that a process needs at a time, in any step."""
        return max(self.memory(step, accumulate or self.accumulate) for step in self.steps)

    def hours(self, step: StepPlan, gpu: Gpu, utilisation: float) -> float:
        speed, _ = gpu.peak(self.precision)
        return step.flops / (self.processes * utilisation * speed) / 3600

    def fits(self, gpu: Gpu, accumulate: int | None = None) -> bool:
        return self.peak(accumulate) <= USABLE * gpu.memory * 2**30

    def remedy(self, gpu: Gpu) -> int | None:
        """The smallest `train.accumulate` that fits, with at least two images at a time for batch norm."""
        batch = max(step.batch for step in self.steps)
        for accumulate in range(self.accumulate + 1, batch // (2 * self.processes) + 1):
            part = -(-batch // accumulate)
            if (batch % part or part) >= 2 * self.processes and self.fits(gpu, accumulate):
                return accumulate
        return None
