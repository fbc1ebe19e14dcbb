"""One more step for a model that is already there: new classes from new images, without the old ones.

It is a run like any other (engine/run.py), which begins with the model instead of at step 0: it is recorded,
logged and resumed like one, and what a scenario rehearses is what happens here.
"""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from segue.core import plugins
from segue.core.config import RunConfig, TrainConfig
from segue.core.errors import UserError
from segue.core.ordinary import user_path
from segue.core.overrides import merge, parse_overrides
from segue.core.presets import choose_preset, fitting_crop
from segue.core.progress import Display
from segue.data.datasets.folder import Folder
from segue.data.kept import kept_digest, open_kept
from segue.data.sizes import usual_shorter_side
from segue.deploy.export.endings import WEIGHTS, ending_of
from segue.deploy.folder_images import folder_images
from segue.deploy.folder_layout import check_place
from segue.deploy.freezing import tell_freezing, with_freezing
from segue.deploy.load import load, load_run
from segue.deploy.model import Model
from segue.deploy.new_data import ready_folder
from segue.deploy.normalisation import IMAGES, surer_normalisation
from segue.deploy.student import METHOD as STUDENT_METHOD
from segue.deploy.student import check_method, student_model, student_words
from segue.deploy.teachers import as_teacher, refuse_growing
from segue.deploy.teachers.outer_model import OuterModel
from segue.engine.checkpoint import tensor_digest
from segue.engine.learned import Learned
from segue.engine.preset import KEY
from segue.engine.recipe import complete
from segue.engine.run import run
from segue.models.adopted.network import AdoptedNetwork
from segue.models.network import Network

DEFAULT_METHOD = "caf"
BALANCE = "train.balance"
ADOPTED_RATES = {"lr_next": 0.001, "head_factor": 3.0, "new_factor": 100.0}
"""slow for what a network from elsewhere has learned, quick for new classes (docs/results/adopted.md)"""
LEAST_CROP = 32
"""side of the smallest crops that are chosen, in pixels"""
ALIKE = 0.8
"""similarity of two names from which on one may be a slip of the other"""


def extend(
    model: Model | OuterModel | str | Path,
    data: str | Path,
    out: str | Path,
    new: Sequence[str] = (),
    method: str | None = None,
    overrides: Sequence[str] = (),
    run_folder: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    display: Display | None = None,
    sure: bool = False,
    keep: str | Path | None = None,
    before: Callable[[RunConfig], None] | None = None,
    student: str | None = None,
) -> Model:
    """Teach a model the classes of a folder that it does not know yet, and write the grown model to `out`.

    `data` is a folder of images and masks, or annotations of another tool (COCO, LabelMe, Cityscapes, masks),
    which are converted to `OUT-data`. Only the new classes need to be annotated. `new` narrows them; `sure`
    says that names which look like slips of known ones are meant. `keep` is a folder of a few labelled images
    of old classes, which are shown again. `before` sees the recipe before anything is trained. `student`
    names a backbone: a new network with it learns the old classes from the model's outputs alone
    (docs/adopt-a-network.md). The model that is extended stays as it is.

    Examples:
        >>> import segue
        >>> grown = segue.extend("model", "new-images", "grown", overrides=["train.epochs=1"])
        >>> grown.classes[-1]
        'bird'
    """
    source = str(model) if isinstance(model, str | Path) else "the model"
    teacher = None if student is None else as_teacher(model)
    loaded = _loaded(model) if teacher is None else student_model(teacher, str(student), overrides, device)
    out, display = Path(out), display or Display()
    _check_out(out, model, resume or overwrite)
    folder = Path(run_folder) if run_folder is not None else run_folder_of(out)
    with ready_folder(data, out, folder, resume, overwrite, display) as images:
        classes = new_classes(loaded, images, new, sure, data)
        name, words = _step_words(loaded, teacher, method, overrides, device)
        config = recipe_of(loaded, images, classes, name, words, keep, device, teacher)
        if isinstance(loaded.network, AdoptedNetwork) and loaded.history is None:
            _look_at_normalisation(loaded.network, images, config.train.crop, display)
        own = _is_own(loaded, config.method.name)
        kept = loaded.history.kept if loaded.history is not None and own else {}
        module = _own_module(loaded)
        outer = None if teacher is None else teacher.outer
        learned = Learned(handed_over(loaded.network, own)[1], kept, source, module, outer)
        if before is not None:
            before(config)
        run(config, folder, resume, overwrite, device, display, learned=learned)
    tell_freezing(loaded, config, display)
    grown = load_run(folder, device=device, module=module)
    history = grown.history.after(loaded.history) if grown.history is not None else None
    grown = replace(grown, colours=_grown_colours(loaded, grown), history=history)
    _save_whole(grown, out)
    return grown


def _loaded(model: Model | OuterModel | str | Path) -> Model:
    """A model that can grow."""
    refuse_growing(model)
    assert not isinstance(model, OuterModel)
    return load(model, "cpu") if isinstance(model, str | Path) else model


def _step_words(
    model: Model, teacher: OuterModel | None, method: str | None, overrides: Sequence[str], device: str
) -> tuple[str, list[str]]:
    """The method of a step, and the words of its recipe with what they leave open."""
    if teacher is not None:
        name = method or STUDENT_METHOD
        check_method(name, teacher)
        return name, with_balance(student_words(overrides, device))
    name = _method_of(model, method)
    said = [*_without_layer(model, name, overrides), *overrides]
    return name, with_balance(with_freezing(model, name, said, device))


def _method_of(model: Model, said: str | None) -> str:
    """The method that is said, else the model's own. A file that only the model names is not run."""
    if said is not None or model.history is None:
        return said or DEFAULT_METHOD
    name = model.history.method
    if name.endswith(".py") and not plugins.was_run(name):
        raise UserError(
            f"The model was made by a method file of somebody's own ({name}), which is run only if you name"
            " it: --method FILE.py."
        )
    return name


def _own_module(model: Model) -> nn.Module | None:
    """The module that a network was adopted from, if it is the user's own: no recipe can build it."""
    network = model.network
    if isinstance(network, AdoptedNetwork) and network.adoption.source["kind"] == "module":
        return network.plain_module()
    return None


def _look_at_normalisation(network: AdoptedNetwork, folder: str | Path, size: int, display: Display) -> None:
    shown = folder_images(folder, "train")
    pixels = [shown[place].image for place in range(min(len(shown), IMAGES))]
    if remark := surer_normalisation(network, pixels, size):
        display.remark(remark)


def _without_layer(model: Model, method: str, overrides: Sequence[str]) -> list[str]:
    """CAF's fusion layer is left out of a network from elsewhere, which its own library could not load."""
    adopted = isinstance(model.network, AdoptedNetwork) and model.network.fusion is None
    said = any(word.startswith(("method.params.layer", "method.params.variant")) for word in overrides)
    if method != "caf" or not adopted or said or _is_own(model, method):
        return []
    return [f"method.params.layer.{part}=false" for part in ("projection", "fusion", "attention")]


def _check_out(out: Path, model: object, again: bool) -> None:
    """Refuse to write the grown model over another one."""
    if isinstance(model, str | Path) and out.resolve() == user_path(model).resolve():
        raise UserError(f"{out} is the model to be extended: name another folder for the grown one.")
    if not again and out.exists() and (out.is_file() or any(out.iterdir())):
        raise UserError(f"{out} exists. Go on with --resume, start anew with --overwrite, or rename --out.")
    if ending_of(out, (WEIGHTS,)) != WEIGHTS:
        check_place(out)


def _save_whole(model: Model, out: Path) -> None:
    """Write a new model, or nothing: a full disk leaves no piece of one."""
    is_new = not out.exists()
    try:
        model.save(out)
    except BaseException:
        if is_new:
            shutil.rmtree(out, ignore_errors=True)
        raise


def handed_over(network: Network, own: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and the weights with which a method goes on, whose `own` network it is or not.

    A fusion layer of another method becomes a fixed part of the encoder: predictions stay as they were.
    """
    settings, state = asdict(network.config), network.state_dict()
    if own or network.fusion is None:
        return settings, state
    before, after = "fusion.", f"settled.{len(network.settled)}."
    settings["settled"] = [*settings["settled"], network.spec()["fusion"]]
    renamed = {
        f"{after}{name.removeprefix(before)}" if name.startswith(before) else name: tensor
        for name, tensor in state.items()
    }
    return settings, renamed


def _is_own(model: Model, method: str) -> bool:
    """Whether a method has made the model: then it knows its layers and what is kept."""
    return model.history is not None and model.history.method == method


def with_balance(words: Sequence[str]) -> list[str]:
    """The words of an extension; unless they say otherwise, cross-entropy is balanced by class.

    What is new covers few pixels of most images (docs/extend-a-model.md has figures).
    """
    said = any(word.partition("=")[0].strip() == BALANCE for word in words)
    return list(words) if said else [f"{BALANCE}=classes", *words]


def run_folder_of(out: Path) -> Path:
    """Where an extension is recorded, unless it is said."""
    return out.with_name(f"{out.name}-run")


def new_classes(
    model: Model, folder: str | Path, narrowed: Sequence[str], sure: bool, data: str | Path
) -> tuple[str, ...]:
    """The classes of a folder that a model does not know, in the folder's order; `data` is its name."""
    table = folder_images(folder, "train").classes
    known, names = set(model.classes), tuple(table.names.values())
    for name in narrowed:
        if name in known:
            raise UserError(f"The model knows '{name}' already: --new names classes that it does not know.")
        table.resolve(name)
    fresh = tuple(name for name in names if name not in known and (not narrowed or name in narrowed))
    if not fresh:
        raise UserError(
            f"{data} has no class that the model does not know: it knows {', '.join(model.classes[1:])}."
        )
    for name in () if sure else fresh:
        if alike := _alike(name, model.classes):
            raise UserError(
                f"'{name}' looks like '{alike}', which the model knows. If it is the same, rename it in"
                f" {data}; if it is new, say so: --yes."
            )
    return fresh


def _alike(name: str, known: Sequence[str]) -> str | None:
    for other in known:
        same = name.casefold().strip() == other.casefold().strip()
        if same or difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio() >= ALIKE:
            return other
    return None


def recipe_of(
    model: Model,
    data: str | Path,
    new: Sequence[str],
    method: str | None,
    overrides: Sequence[str],
    keep: str | Path | None = None,
    device: str = "auto",
    teacher: OuterModel | None = None,
) -> RunConfig:
    """The recipe of the step: that of the model's run, on new images.

    Without such a run, and where a preset is named, batch, epochs and precision are those of a preset.
    """
    history = model.history
    steps = history.steps if history is not None else _grown_steps(model)
    said = parse_overrides(overrides)
    train = said.get("train")
    if isinstance(train, dict) and "epochs" in train:
        train.setdefault("epochs_next", None)  # the model's recipe may have a number for later steps
    preset = said.pop(KEY, None)
    stored: dict[str, Any] = dict(history.recipe) if history is not None else {}
    if preset is not None or history is None:
        stored = merge(stored, _preset_values(model, data, preset, device))
    name = _method_of(model, method)
    own = _is_own(model, name)
    scenario = {
        "dataset": "folder",
        "split": [list(step) for step in (*steps, tuple(new))],
        "mode": "sequential",
        "learned": len(steps),
        "learned_by": tensor_digest(model.network.state_dict()),
    }
    if teacher is not None:
        scenario |= {"teacher": teacher.place, "learned_by": teacher.digest}
    if keep is not None:
        scenario |= {"keep": str(keep), "keep_digest": kept_digest(open_kept(str(keep)))}
    for key in ("void", "future"):
        if key in stored.get("scenario", {}):
            scenario[key] = stored["scenario"][key]
    asked: dict[str, Any] = {
        "scenario": scenario,
        "method": dict(stored["method"]) if own else {"name": name},
        "data": {"root": str(data)},
        "model": {**handed_over(model.network, own)[0], "weights": None, "pretrained": False},
        **{section: stored[section] for section in ("optim", "train") if section in stored},
        "eval": {**stored.get("eval", {}), **_as_tested(model)},
    }
    return complete(merge(json.loads(json.dumps(asked)), said))


def _as_tested(model: Model) -> dict[str, Any]:
    """Tests of the step see images as the model does: an adopted one's size is not that of the crops."""
    tested: dict[str, Any] = {"background": "closed" if model.closed else "open"}
    if isinstance(model.network, AdoptedNetwork):
        tested["size"] = model.images.size or "own"
    return tested


def _grown_steps(model: Model) -> tuple[tuple[str, ...], ...]:
    """The classes of each step, as the classifier has grown: its first part holds background too."""
    names = iter(model.classes[1:])
    first, *rest = model.network.classifier.sizes
    return tuple(tuple(islice(names, size)) for size in (first - 1, *rest))


def _preset_values(model: Model, data: str | Path, name: str | None, device: str) -> dict[str, Any]:
    """A preset without its network, which is the model's, as the size of its images is.

    A model that takes images as they are gets crops no larger than they are: it will see nothing enlarged.
    """
    chosen = choose_preset(name, device).values
    values = {section: chosen[section] for section in ("optim", "train") if section in chosen}
    crop = model.images.size
    if crop is None and (side := usual_shorter_side(Folder, Folder.Config(root=str(data)))):
        least = max(model.network.divisor, LEAST_CROP)
        crop = max(fitting_crop(values.get("train", {}).get("crop", TrainConfig().crop), side), least)
        crop -= crop % model.network.divisor
    size = {} if crop is None else {"crop": crop}
    rates = ADOPTED_RATES if isinstance(model.network, AdoptedNetwork) else {}
    return merge(values, {"optim": rates, "train": {"epochs_next": None, **size}})


def _grown_colours(before: Model, after: Model) -> tuple[Any, ...]:
    """Old classes keep their colours."""
    fresh = (colour for colour in after.colours if colour not in before.colours)
    return (*before.colours, *(next(fresh, (255, 255, 255)) for _ in after.classes[len(before.classes) :]))
