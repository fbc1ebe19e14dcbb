"""Which runs may stand in one table, and what has to be said of those that do.

Data set, classes and policies have to agree. Runs may have learned a different number of steps: what the
shorter one lacks is a dash. A run that extends a model has images of its own, and no step that the model had
learned before; it may stand beside the run that made the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from segue.core.records import RunRecord, StepRecord

Groups = tuple[tuple[str, ...], ...]


def split_text(groups: Groups) -> str:
    """Sizes of the groups: 5-2-2; long splits in short form: 100-10x5."""
    sizes = [len(group) for group in groups]
    if len(sizes) <= 6:
        return "-".join(map(str, sizes))
    runs = [(size, len(list(same))) for size, same in groupby(sizes)]
    return "-".join(f"{size}x{count}" if count > 1 else str(size) for size, count in runs)


def extends_a_model(record: StepRecord) -> bool:
    """Whether a run with this first record begins with a model instead of at step 0."""
    return record.step > 0


def tested_text(policy: Mapping[str, str]) -> str:
    """What was tested in another way than usual, if anything was."""
    return ", ".join(policy[key] for key in ("tested", "between") if key in policy)


def difference(a: StepRecord, b: StepRecord) -> str | None:
    """Why two runs with these first records are not comparable."""
    extension = extends_a_model(a) or extends_a_model(b)
    if a.dataset != b.dataset and not extension:
        return f"the data set is '{a.dataset}' in the first and '{b.dataset}' in the second"
    common = min(len(a.groups), len(b.groups))
    if [len(group) for group in a.groups[:common]] != [len(group) for group in b.groups[:common]]:
        return f"the split is {split_text(a.groups)} in the first and {split_text(b.groups)} in the second"
    for step, (group_a, group_b) in enumerate(zip(a.groups, b.groups, strict=False)):
        for name_a, name_b in zip(group_a, group_b, strict=True):
            if name_a != name_b:
                return f"step {step} has class '{name_a}' in the first where the second has '{name_b}'"
    for key in dict.fromkeys([*a.policy, *b.policy]):
        policy_a, policy_b = a.policy.get(key), b.policy.get(key)
        if policy_a != policy_b and not (extension and key == "mode"):
            return f"the policy '{key}' is {policy_a!r} in the first and {policy_b!r} in the second"
    return None


def notes(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Remarks on single runs."""
    found = []
    for run in runs:
        if not run.steps:
            found.append(f"{run.name} is left out: no step is finished yet.")
        elif not run.finished:
            total = len(run.steps[0].groups)  # a run of Joint has one step and is finished with it
            found.append(f"* {run.name} is not finished: {len(run.steps)} of {total} steps so far.")
    started = [run for run in runs if run.steps]
    longest = max((len(run.steps[0].groups) for run in started), default=0)
    for run in started:
        first, length = run.steps[0], len(run.steps[0].groups)
        if extends_a_model(first):
            found.append(f"{run.name} extends a model by step {first.step}: it is tested on its own images.")
        if length < longest:
            found.append(f"{run.name} has no step after {length - 1}: its end is that step.")
    return (*found, *_other_pixels(started))


def _other_pixels(runs: Sequence[RunRecord]) -> list[str]:
    """Same split and policies, yet other pixels per class: another test set, or another test size."""
    finished = [run for run in runs if run.finished and not extends_a_model(run.steps[0])]
    pixels = [run.steps[-1].matrix.sum(1) for run in finished]
    others = [
        run.name
        for run, truth in zip(finished, pixels, strict=True)
        if len(truth) == len(pixels[0]) and (truth != pixels[0]).any()
    ]
    return (
        [f"Not scored on the same test pixels as {finished[0].name}: {', '.join(others)}."] if others else []
    )
