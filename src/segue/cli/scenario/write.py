"""`segue scenario write`: the images of every step as a manifest."""

from __future__ import annotations

import shlex
from typing import Annotated

from segue.cli._tell import quote, tell_next
from segue.cli.options import ON, SPLIT, ManifestOut, ModeOption, Words

PLACE = 1


def command(
    out: ManifestOut,
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
) -> None:
    """Write the images of every step as a manifest.

    segue scenario write ade-100-10.json --on ade20k --split 100-10 data.root=FOLDER

    'segue train METHOD --manifest FILE' trains on exactly these images.
    """
    from segue.engine.manifests import write_scenario

    write_scenario(out, on, split, mode, words or [])
    tell_next(f"train {shlex.join(['caf', *(words or [])])} --manifest {quote(out)}")
