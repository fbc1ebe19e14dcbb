"""The runs of a study that are not done yet, carried out; what is done is checked and kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import RunRecord, has_records, read_recipe, read_run
from segue.engine.build import build_method
from segue.engine.checkpoint import CheckpointStore
from segue.engine.folder import check_folder, check_images, check_recipe, identity
from segue.plan.preflight import before_run
from segue.studies.first_steps import Manifests, jobs_sharing_first_steps
from segue.studies.jobs import Workers
from segue.studies.pool import run_all


def run_missing(
    runs: Mapping[Path, RunConfig],
    out: Path,
    device: str,
    display: Display,
    workers: Workers | None = None,
) -> UserError | None:
    """Carry out those of the runs that are not finished yet, here or where `workers` says.

    What fails does not take the others with it: it is returned.
    """
    workers = workers or Workers()
    missing = {place: recipe for place, recipe in runs.items() if not is_done(place, recipe)}
    manifest_of = Manifests(display)
    done = {place: recipe for place, recipe in runs.items() if place not in missing}
    _check_images(done, manifest_of, read_anyway=bool(missing))
    if not missing:
        return None
    if workers.cluster is None:  # the memory of other machines is not known here
        before_run([*missing.values()], device, display)
    _check_start(missing, out)
    jobs = jobs_sharing_first_steps(missing, out, manifest_of)
    display.say(f"Runs to do: {len(jobs)}; done: {len(runs) - len(jobs)}. All are kept in {out}.")
    try:
        run_all(jobs, device, display, keep_going=True, workers=workers)
    except UserError as error:
        return error
    return None


def _check_start(missing: Mapping[Path, RunConfig], out: Path) -> None:
    """What would stop a run at its beginning is said once, before any of them is trained."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: name a folder with --out.")
    new = [recipe for place, recipe in missing.items() if not CheckpointStore(place).entries()]
    models = set[str]()
    for recipe in {str((recipe.model, recipe.method)): recipe for recipe in new}.values():
        # the weights of a model are read once: that takes longest
        build_method(recipe, torch.device("cpu"), initial_weights=str(recipe.model) not in models)
        models.add(str(recipe.model))


def _check_images(done: Mapping[Path, RunConfig], manifest_of: Manifests, read_anyway: bool) -> None:
    """Finished runs, too, have to be of the images that are meant now; not where only records are kept."""
    for place, recipe in done.items():
        before = read_recipe(place).get("data", {}).get("root")
        root = getattr(recipe.data, "root", before)
        moved = before is not None and Path(before).resolve() != Path(root).resolve()
        if (read_anyway or moved) and (place / "scenario.json").is_file():
            try:
                check_images(place, manifest_of(recipe, place))
            except UserError as error:
                raise UserError(f"{error} For other data name another folder with --out.") from error


def started_runs(places: Iterable[Path]) -> tuple[RunRecord, ...]:
    return tuple(read_run(place) for place in places if has_records(place))


def is_done(folder: Path, recipe: RunConfig) -> bool:
    """Whether the run of this recipe is finished; a run of another recipe in its place is refused."""
    try:
        check_folder(folder, recipe, resume=True, overwrite=False)
        if has_records(folder):
            check_recipe(folder, read_recipe(folder), recipe)
        if recipe.method.name.endswith(".py"):  # the file may have changed since: then its checkpoints say so
            CheckpointStore(folder, identity(recipe)).resume_point(lambda _: None)
    except UserError as error:
        raise UserError(f"{error}\nFor many runs at once: name another folder with --out.") from error
    return has_records(folder) and read_run(folder).finished
