"""`segue predict`: masks of images, folders, videos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from segue.cli._stories import USE
from segue.cli._tell import print_json, quote, tell, tell_next
from segue.cli.options import Device, Json, ModelPlace, Quiet, flag, out_option
from segue.core.errors import UserError

if TYPE_CHECKING:
    from segue.deploy.predict import Predicted

EXPORTED = "EXPORT.json"
"""stand-in for the name of the file that Label Studio exports"""
STORY, PLACE = USE, 9


def command(
    model: ModelPlace,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="Images, folders, patterns, videos; - is stdin."),
    ],
    out: Annotated[Path, out_option("Folder to write.")],
    overlay: Annotated[bool, flag("--overlay", help="Also the images under their classes.")] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="MODEL", help="An old model: old, new and difference."),
    ] = None,
    to: Annotated[
        Literal["coco", "labelme", "labelstudio", "voc"] | None,
        typer.Option("--to", metavar="FORMAT", help="Also annotations: coco, labelme, labelstudio or voc."),
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(
            "--tile", metavar="N", min=64, max=8192, help="See images in tiles, at their own resolution."
        ),
    ] = None,
    flips: Annotated[bool, flag("--flips", help="Average with mirrored images.")] = False,
    scales: Annotated[
        str, typer.Option("--scales", metavar="NUMBERS", help="Average over sizes: 0.75,1,1.25.")
    ] = "1",
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, max=1024, help="Images that are seen together.")
    ] = 8,
    resume: Annotated[bool, flag("--resume", help="Leave out what is done.")] = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the masks of images: the class of every pixel, by name and colour.

    segue predict model/ photos/ --out predicted --overlay

    predictions.csv holds the area of each class. Bad files are skipped and named.
    Exit code 0: all done; 1: some files were skipped; 2: the command itself is wrong.
    """
    from segue.core.progress import Display
    from segue.deploy.annotate import annotate, check_target, common_folder
    from segue.deploy.inputs import find_inputs
    from segue.deploy.predict import Settings, predict
    from segue.deploy.predictor import open_predictor
    from segue.deploy.views import Views

    settings = Settings(tile, Views(flips, _numbers(scales)), batch, overlay)
    sources = find_inputs(inputs, out)
    predictor = open_predictor(model, device)
    if to is not None:
        check_target(to, sources, predictor.classes)
    old = None if compare is None else open_predictor(compare, device)
    done = predict(predictor, sources, out, settings, old, resume, Display(quiet=quiet or as_json), model)
    skipped = list(done.skipped)
    if to is not None:
        folder, left_out = annotate(to, out, sources, done.records, predictor.classes)
        skipped += left_out
    if as_json:
        print_json(done.document)
    else:
        _tell(done, out, skipped)
    if to is not None:  # Label Studio exports what was corrected; other tools change the files themselves
        corrected = EXPORTED if to == "labelstudio" else quote(folder)
        next_command = f"data convert {corrected} MINE --images {quote(common_folder(sources))}"
        tell_next(next_command, "once the annotations are corrected", silent=quiet)
    elif not overlay:
        words = " ".join(map(quote, [model, *inputs]))
        tell_next(f"predict {words} --out {quote(out)} --overlay --resume", "see the masks", silent=quiet)
    else:
        tell_next(f"extend {quote(model)} NEW-IMAGES --out GROWN", "one more class", silent=quiet)
    if skipped:
        raise typer.Exit(1)


def _tell(done: Predicted, out: Path, skipped: list[tuple[str, str]]) -> None:
    fresh = len(done.records) - done.resumed
    rate = f", {fresh / done.seconds:.1f} images/s" if fresh and done.seconds > 0 else ""
    before = f" ({done.resumed} done before)" if done.resumed else ""
    tell(f"{len(done.records)} images{before}{rate}: {out / 'predictions.csv'}")
    for _, reason in skipped:
        tell(f"skipped: {reason}")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise UserError(f"--scales takes numbers such as 0.75,1,1.25, not '{text}'.") from error
