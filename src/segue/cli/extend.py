"""`segue extend`: one more class for a model that is already there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from segue.cli._stories import USE
from segue.cli._tell import print_json, quote, tell, tell_next
from segue.cli.options import Device, Json, ModelPlace, Quiet, flag, method_names, out_option

if TYPE_CHECKING:
    from segue.core.verdict import Verdict

STORY, PLACE = USE, 8
PASSED_OVER = (
    "{0} of {1} images in {2} give scores: those that a hash of their names holds out, as in training."
    " If none of them has trained the model, list all in {2}/val.txt."
)


def of_network(name: str, help: str) -> Any:
    """An option for `adopt.NAME=VALUE`."""
    return typer.Option(f"--{name}", metavar="NAME", help=help, rich_help_panel="Networks from elsewhere")


def command(
    model: ModelPlace,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Images in which new classes are drawn: a folder with masks, or annotations.",
        ),
    ],
    out: Annotated[Path, out_option("Model folder to write.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings: train.epochs_next=8, verdict.class_drop=5."),
    ] = None,
    new: Annotated[
        str | None, typer.Option("--new", metavar="NAMES", help="The new classes, if not all: bird,fish.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="By default the model's own, or else caf.",
            autocompletion=method_names,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="N", min=1, help="Passes over the new images.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="FOLDER", help="Labelled images of old classes, for scores alone."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="FOLDER", help="Labelled images of old classes, to be shown again."),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            "--student",
            metavar="BACKBONE",
            help="A new network that learns from MODEL's outputs: for ONNX, TorchScript.",
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", metavar="POINTS", help="Largest loss of mean IoU of old classes (2)."),
    ] = None,
    background: Annotated[str | None, of_network("background", "Class that plays it, or none.")] = None,
    classifier: Annotated[str | None, of_network("classifier", "Layer that gives the logits.")] = None,
    features: Annotated[str | None, of_network("features", "Module that gives what it sees.")] = None,
    encoder: Annotated[str | None, of_network("encoder", "Module that gives the encoder's maps.")] = None,
    resume: Annotated[bool, flag("--resume", help="Go on where the same command stopped.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", help="Delete an earlier run of this extension.")] = False,
    no_pictures: Annotated[
        bool, flag("--no-pictures", help="No pictures of new images in the model folder.")
    ] = False,
    yes: Annotated[bool, flag("--yes", help="New names that look like known ones are meant.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach a model new classes from new images. The old images are not needed.

    segue extend model/ new-images/ --out grown

    Classes of DATA that the model does not know are new, and only they need to be drawn.
    COCO, LabelMe and Cityscapes annotations and colour masks are converted to GROWN-data.

    segue extend torchvision:lraspp_mobilenet_v3_large@net.pth DATA --out grown adopt.classes=names.txt

    Networks of torchvision, smp, Hugging Face and one's own are taken in: docs/adopt-a-network.md.

    segue extend model.onnx DATA --student mobilenetv2_100 --out grown model.pretrained=true

    What cannot grow teaches a new network, by its outputs alone.
    Exit code 0: safe to deploy; 1: look at the verdict first; 2: the command itself is wrong.
    """
    from segue.cli._adopted import open_source, write_native
    from segue.core.progress import Display
    from segue.core.verdict import limits_of
    from segue.deploy.examine import VERDICT_PAGE, examine, labelled_images, passed_over
    from segue.deploy.extend import extend, run_folder_of
    from segue.deploy.new_data import data_folder
    from segue.deploy.teachers.outer_model import OuterModel
    from segue.plan.preflight import before_run

    limits, said = limits_of(words or [], max_drop)
    said += [] if epochs is None else [f"train.epochs_next={epochs}"]
    parts = {"background": background, "classifier": classifier, "features": features, "encoder": encoder}
    said += [f"adopt.{name}={value}" for name, value in parts.items() if value is not None]
    names = [name.strip() for name in new.split(",")] if new else []
    display = Display(quiet=quiet or as_json)
    old, source, said = open_source(model, said, device, display, student is not None)
    if check is not None:
        images = labelled_images(check, old)  # said before training, not after
        if others := passed_over(check, images):
            display.say(PASSED_OVER.format(len(images), len(images) + others, check))
    options = {"sure": yes, "keep": keep, "student": student}
    network = None if isinstance(old, OuterModel) else old.network
    grown = extend(
        source, data, out, names, method, said, None, resume, overwrite, device, display, **options,
        before=lambda recipe: before_run([recipe], device, display, network),
    )  # fmt: skip
    write_native(grown, out, display)
    verdict = examine(old, grown, out, data_folder(data, out), check, limits, display, not no_pictures)
    if as_json:
        print_json(dataclasses.asdict(verdict))
    else:
        _tell_verdict(verdict, out, run_folder_of(out) / VERDICT_PAGE)
    _tell_next(verdict, model, data, out, student, silent=quiet or as_json)
    if not verdict.safe:
        raise typer.Exit(1)


def _tell_verdict(verdict: Verdict, out: Path, page: Path) -> None:
    from segue.deploy.card_pictures import PICTURES
    from segue.report.verdict import verdict_table

    Console().print(verdict_table(verdict))
    tell(f"Verdict: {verdict.answer}. It rests on {verdict.evidence}")
    for line in (*verdict.reasons, *verdict.remarks):
        tell(f"  {line}")
    tell(f"Model: {out}. Run: {page.parent}")
    tell(f"Pictures of what changed: {page}")
    if (out / PICTURES).is_dir():
        tell(f"The model's card shows a few of them: {out / PICTURES}. --no-pictures leaves them out.")


def _tell_next(verdict: Verdict, model: str, data: str, out: Path, student: str | None, silent: bool) -> None:
    """Use the model, look at what has changed, or try again with a few old images."""
    use = f"predict {quote(out)} photos/ --out predicted"
    if verdict.safe:
        tell_next(use, "masks of new images", silent)
    elif verdict.answer == "look here first":
        tell_next(f"{use} --compare {quote(model)}", "old model, new model, difference", silent)
    else:
        teaches = "" if student is None else f" --student {quote(student)}"
        again = (
            f"extend {quote(model)} {quote(data)}{teaches} --out {quote(out)} --overwrite --keep OLD-IMAGES"
        )
        tell_next(again, "with a few labelled images of old classes", silent)
