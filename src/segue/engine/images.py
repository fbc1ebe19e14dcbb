"""Which images train each step, which are held out, and why a step cannot be trained with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.scenario import Scenario, Step
from segue.data.batches import WHOLE
from segue.engine.processes import ALONE, Group


def chosen_by_name(keys: Sequence[str], fraction: float) -> np.ndarray:
    """Which images belong to a fraction of all: the same in every step, whatever else there is."""
    # not the hash that parts a folder into training and test images: it would find none of its fraction again
    digests = (hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=4) for key in keys)
    return np.array([int.from_bytes(digest.digest(), "big") < fraction * 2**32 for digest in digests])


def step_images(
    scenario: Scenario,
    listed: Sequence[Sequence[str]] | None,
    keys: Sequence[str],
    present: np.ndarray,
    hold_out: float = 0.0,
    trained: Sequence[Sequence[str]] = (),
) -> tuple[np.ndarray, ...]:
    """The images, as places in `keys`, that train each step: those that a manifest lists, or by the rule,
    without those that are held out.

    Of the first steps, which are finished, `trained` names the images: some or all of them may be gone.
    """
    place, first = {key: index for index, key in enumerate(keys)}, len(trained)
    left = (np.array([place[key] for key in names if key in place], dtype=np.int64) for names in trained)
    if listed is None:
        images = scenario.train_images(present)[first:]
    else:
        images = _listed_images(listed[first:], place)
    if hold_out:
        held_out = chosen_by_name(keys, hold_out)
        images = tuple(chosen[~held_out[chosen]] for chosen in images)
    return (*left, *images)


def _listed_images(listed: Sequence[Sequence[str]], place: Mapping[str, int]) -> tuple[np.ndarray, ...]:
    if missing := [key for names in listed for key in names if key not in place]:
        raise UserError(
            f"The manifest names '{missing[0]}', which the data set lacks ({len(missing)} such images)."
            " Write it anew: segue scenario write."
        )
    return tuple(np.array([place[key] for key in names], dtype=np.int64) for names in listed)


def step_problems(
    config: RunConfig,
    scenario: Scenario,
    counts: Sequence[tuple[int, int]],
    group: Group = ALONE,
    first_step: int = 0,
) -> list[str]:
    """Why steps with so many training and test images cannot be trained, if so."""
    problems, held_out = [], config.scenario.hold_out
    for step, (train, test) in list(zip(scenario, counts, strict=True))[first_step:]:
        names = ", ".join(scenario.classes.names[class_id] for class_id in step.new)
        if train < 2:
            problems.append(
                f"Step {step.index} has {train} training images with its new classes ({names}) in mode"
                f" '{scenario.mode}'; it needs at least 2. Choose another split or mode"
                f"{', a smaller scenario.hold_out' if held_out else ''}, or add images."
            )
        elif problem := _batch_problem(config, step, min(config.train.batch_size, train), group):
            problems.append(problem)
        if test == 0:
            which, remedy = ("held-out", " Hold out more: scenario.hold_out.") if held_out else ("test", "")
            problems.append(
                f"No {which} image shows a class that is known at step {step.index} ({names}).{remedy}"
            )
    return problems


def _batch_problem(config: RunConfig, step: Step, batch: int, group: Group) -> str | None:
    """Why the smallest micro-batch is too small for batch norm, or to be shared by all processes."""
    micro_batches = WHOLE.places(batch, config.train.accumulate)
    least = min(map(len, micro_batches))
    norm_learns = step.first or config.train.norm == "batch"
    needed = 2 if norm_learns and not group.syncs_norm else 1
    if least >= max(needed * group.size, 2 if norm_learns else 1):
        return None
    if group.size == 1:
        return (
            f"train.accumulate={config.train.accumulate} leaves a micro-batch of one image"
            f" (batches of {batch} at step {step.index}), but batch norm needs at least 2."
            " Choose a smaller train.accumulate."
        )
    split = f" in {len(micro_batches)} micro-batches" if len(micro_batches) > 1 else ""
    reason = ", for batch norm" if needed == 2 else ""
    fixes = ["start fewer processes"]
    if batch == config.train.batch_size:
        fixes.append("choose a larger train.batch_size")
    if split:
        fixes.append("choose a smaller train.accumulate")
    return (
        f"{group.size} processes cannot share the batches of step {step.index}: {batch} images{split}"
        f" (train.batch_size={config.train.batch_size}), but each needs {needed} at a time{reason}."
        f" {', or '.join(fixes).capitalize()}."
    )
