"""`segue data check`: every file read once, held against the scenario, with what a run would take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.core import plugins
from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.scenario import Scenario
from segue.data.datasets._files import FileDataset
from segue.data.datasets.base import SegDataset
from segue.data.doctor.diagnosis import Diagnosis, diagnose, numbered
from segue.data.doctor.examine import Examined, examine
from segue.data.skip import write_skip_list
from segue.engine.build import build_scenario, open_sets
from segue.engine.device import pick_device
from segue.engine.images import step_images, step_problems
from segue.plan.preflight import Forecast, forecast
from segue.report.checkup import spread_text


@dataclass(frozen=True)
class Checkup:
    """What was found, and what a run would take."""

    diagnosis: Diagnosis
    notes: tuple[str, ...]
    """how images were found, which lists are not used, sizes"""
    costs: tuple[str, ...]
    """words of `segue train` before its first step"""
    bad: int
    """images that cannot be used"""


def check_data(config: RunConfig, skip_bad: Path | None, device: str, display: Display) -> Checkup:
    """Read everything once; images that cannot be used are listed in the file `skip_bad`."""
    pick_device(device)  # before anything is read
    sets = dict(zip(("train", "test"), open_sets(config), strict=True))
    scenario, listed = build_scenario(config, sets["train"])
    unused, remarks = unused_sets(config, sets.values())
    found = {name: _examine(dataset, name, display) for name, dataset in sets.items()}
    spare = {name: _examine(dataset, name, display) for name, dataset in unused.items()}
    bad = {name: {image.key: image.reason for image in each.bad} for name, each in found.items()}
    if skip_bad is not None:
        # a list that no run uses may become the test images of one
        others = {image.key: image.reason for each in spare.values() for image in each.bad}
        write_skip_list(
            skip_bad,
            scenario.classes.dataset,
            {**bad, "test": others | bad["test"]},
            getattr(config.data, "skip", None),
        )
    ahead: Forecast | None = None
    if len(found["train"].indices):
        ahead = forecast([config], device, f"A run of {Path(config.method.name).stem}")
    refused = [ahead.text] if ahead is not None and ahead.refused else []
    costs = (ahead.text,) if ahead is not None and not ahead.refused else ()
    diagnosis = _diagnose(
        config,
        scenario,
        listed,
        [*sets.values(), *unused.values()],
        found,
        skip_bad is not None,
        spare,
        refused,
    )
    notes = dict.fromkeys(note for dataset in sets.values() for note in dataset.notes)
    return Checkup(diagnosis, (*notes, *remarks, *_sizes(diagnosis)), costs, sum(map(len, bad.values())))


def unused_sets(config: RunConfig, used: Iterable[SegDataset]) -> tuple[dict[str, SegDataset], list[str]]:
    """Images that are there but no run uses, such as those of test.txt beside train.txt and val.txt, and
    what to say of them."""
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    others = kind.other_tests(config.data)
    known = {pair.image for dataset in used if isinstance(dataset, FileDataset) for pair in dataset.pairs}
    sets: dict[str, SegDataset] = {}
    remarks = []
    for name, options in others.items():
        try:
            dataset = kind(options, "test")
        except UserError as error:  # often there are no masks of them
            remarks.append(f"The part '{name}' is not used, and cannot be: {error}")
            continue
        if isinstance(dataset, FileDataset) and known.issuperset(pair.image for pair in dataset.pairs):
            continue  # trainval: the two others together
        sets[name] = dataset
        remarks.append(
            f"The part '{name}' is not used: runs train on '{config.data.train}' and test on"
            f" '{config.data.test}'. To test on it instead, add data.test={name}."
        )
    return sets, remarks


def _diagnose(
    config: RunConfig,
    scenario: Scenario,
    listed: Sequence[Sequence[str]] | None,
    sets: Sequence[SegDataset],
    found: Mapping[str, Examined],
    left_out: bool,
    unused: Mapping[str, Examined],
    refused: Sequence[str],
) -> Diagnosis:
    """What was found, held against the scenario as a run would have it, and why the machine refuses it."""
    train, test, lost = found["train"], found["test"], set()
    if listed is not None:  # a manifest is not changed by a list of files to leave out
        bad = {image.key for image in train.bad}
        lost = bad.intersection(key for keys in listed for key in keys)
        listed = [[key for key in keys if key not in bad] for keys in listed]
    images = step_images(scenario, listed, train.keys, train.present)
    counts = [
        (len(images[step.index]), len(scenario.select(step, test.present, "test"))) for step in scenario
    ]
    problems = [*step_problems(config, scenario, counts), *refused]
    if lost:
        problems.append(f"The manifest needs {numbered(lost, 'image')} that cannot be used: write another.")
    files = [dataset for dataset in sets if isinstance(dataset, FileDataset)]
    orphans, shared = _orphans(files), _shared(files)
    bits = files[0].bits if files else 16
    settings = [f"train.{key}={getattr(config.train, key)}" for key in ("crop_on", "balance")]
    settings.append(f"eval.background={config.eval.background}")
    return diagnose(
        scenario, train, test, images, config.train.crop, bits, problems, orphans, shared, left_out, unused,
        settings,
    )  # fmt: skip


def _examine(dataset: SegDataset, name: str, display: Display) -> Examined:
    with display.bar(f"reading {name} files", len(dataset)) as bar:
        return examine(dataset, lambda done, _: bar.update(done))


def _orphans(sets: Iterable[FileDataset]) -> set[str]:
    """Masks on disk of no image of these splits. Their names count: SBD has the masks of VOC once more."""
    used = {pair.mask.name for dataset in sets for pair in (*dataset.pairs, *dataset.skipped)}
    return {str(path) for dataset in sets for path in dataset.mask_files() if path.name not in used}


def _shared(sets: Sequence[FileDataset]) -> set[str]:
    """Training images that are in another of these lists too."""
    images = [{str(pair.image) for pair in dataset.pairs} for dataset in sets]
    return images[0] & set.union(*images[1:]) if len(images) > 1 else set()


def _sizes(diagnosis: Diagnosis) -> Iterator[str]:
    for name, sizes in diagnosis.sizes.items():
        yield f"{diagnosis.images[name]:,} {name} images: {spread_text(sizes)} pixels."
