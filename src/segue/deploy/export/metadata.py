"""What stands in an exported file beside the graph: names, colours and preparation, for Segue and for others.

Readers look in different places: ultralytics for `names`, `stride` and `task`, OpenVINO's ModelAPI for keys
that begin with `model_info`, Deepness (QGIS) for `class_names`, `model_type` and `tile_size` (its pages say
`tiles_size`), Segue for `segue`. No torch.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

import segue
from segue.core.classes import IGNORE
from segue.core.config import validate
from segue.core.errors import UserError
from segue.deploy.prepare import Preparation

FORMAT = "segue-graph-1"
OWN = "segue"
"""key of what Segue itself reads"""
Byte = Annotated[int, Field(ge=0, le=255)]


@dataclass(frozen=True)
class About:
    """What Segue needs to know of a file."""

    classes: tuple[str, ...]
    """names of the channels, background first"""
    colours: tuple[tuple[Byte, Byte, Byte], ...]
    """red, green and blue of each class"""
    images: Preparation
    """how images come to the network"""
    format: str = FORMAT


def metadata(about: About, stride: int, size: int | None = None) -> dict[str, str]:
    """The same in all forms, text by text; `size` is the side of the images that a file takes, if fixed."""
    tiles = {} if size is None else {"tile_size": str(size), "tiles_size": str(size)}
    names = dict(enumerate(about.classes))
    info = {
        "label_names": list(about.classes),
        "label_groups": [list(about.classes)],
        "label_ids": [str(channel) for channel in names],
        "ignore_index": IGNORE,
    }
    return {
        OWN: json.dumps(dataclasses.asdict(about), ensure_ascii=False),
        "names": str(names),
        "class_names": json.dumps(names, ensure_ascii=False),
        "colors": json.dumps(about.colours),
        "model_type": json.dumps("Segmentor"),
        "model_info model_type": "Segmentation",
        "model_info labels": " ".join(name.replace(" ", "_") for name in about.classes),
        "model_info label_info": json.dumps(info, ensure_ascii=False),
        # normalisation is inside the file: whoever does what these say changes nothing
        "model_info mean_values": "0.0 0.0 0.0",
        "model_info scale_values": "1.0 1.0 1.0",
        "stride": str(stride),
        "task": "semantic-segmentation",
        "shorter_side": json.dumps(about.images.size),
        **tiles,
        "version": segue.__version__,
        "license": "other",
        "author": "Segue",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "description": f"Semantic segmentation, {len(about.classes)} channels; image 0..255, RGB, NCHW",
    }


def read_about(found: Mapping[str, str], name: str) -> About:
    """What Segue wrote into a file; `name` is for the message if it did not."""
    try:
        document = json.loads(found[OWN])
        if document.get("format") != FORMAT:
            raise UserError(
                f"{name} was written by another version ({document.get('format')}; this one reads {FORMAT})."
                " Update: pip install --upgrade segue."
            )
        about = validate(About, document, "")
    except KeyError as error:
        raise UserError(f"{name} was not written by 'segue export': its classes are not known.") from error
    except (ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{name} says nothing readable of its classes: {error}.") from error
    if len(about.classes) != len(about.colours):
        raise UserError(f"{name} has {len(about.colours)} colours for {len(about.classes)} classes.")
    return about
