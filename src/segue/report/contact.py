"""A contact sheet: images, masks as they were drawn, and labels as a model is taught them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from segue.core.classes import IGNORE, ClassTable
from segue.core.palette import BACKGROUND, UNSCORED, class_colours, flat_palette, hexadecimal
from segue.core.scenario import Scenario, Step
from segue.report.page import render_page, write_page
from segue.report.pictures import Picture, coloured, fitted, picture

Part = Literal["train", "test"]


@dataclass(frozen=True)
class Card:
    """One image of the sheet."""

    key: str
    photo: Picture
    drawn: Picture
    taught: Picture
    names: str
    """classes in the mask, those that the step brings first"""


def make_card(
    scenario: Scenario, step: Step, part: Part, key: str, image: np.ndarray, mask: np.ndarray
) -> Card:
    """The three pictures of an image; a class has one colour in both masks."""
    classes, places = scenario.classes, palette_places(scenario.classes)
    palette = flat_palette(class_colours(classes.ids, classes.colours))
    labels = scenario.label_table(step, part)[mask]
    of_label = np.full(256, IGNORE, dtype=np.uint8)
    of_label[0] = 0
    of_label[1 : len(step.seen) + 1] = places[list(step.seen)]
    present = [class_id for class_id in (*step.new, *classes.ids) if (mask == class_id).any()]
    photo = fitted(Image.fromarray(image), Image.Resampling.BILINEAR)
    return Card(
        key,
        picture(photo, f"{key}: image"),
        picture(coloured(Image.fromarray(places[mask]), palette), f"{key}: mask as drawn"),
        picture(coloured(Image.fromarray(of_label[labels]), palette), f"{key}: labels in this step"),
        ", ".join(dict.fromkeys(classes.names[class_id] for class_id in present)),
    )


def write_contact_sheet(
    path: Path, scenario: Scenario, step: Step, part: Part, cards: Sequence[Card], images: int
) -> Path:
    """Write the page; `images` is the number of images that the step has."""
    classes = scenario.classes
    colours = class_colours(classes.ids, classes.colours)
    names = dict(zip((classes.names[class_id] for class_id in classes.ids), colours, strict=True))
    legend = {"background": BACKGROUND, **names, "ignored or void": UNSCORED}
    page = render_page(
        "contact.html.j2",
        title=f"{classes.dataset}, step {step.index} of {len(scenario) - 1}, {scenario.mode}, {part}",
        new=", ".join(classes.names[class_id] for class_id in step.new),
        policy={"mode": scenario.mode, "void": scenario.void},
        part=part,
        cards=cards,
        images=images,
        legend={name: hexadecimal(colour) for name, colour in legend.items()},
    )
    return write_page(path, page)


def palette_places(classes: ClassTable) -> np.ndarray:
    """The place in the palette of each of 256 ids: background 0, classes from 1, the rest 255."""
    places = np.full(256, IGNORE, dtype=np.uint8)
    if classes.background is not None:
        places[classes.background] = 0
    places[list(classes.ids)] = np.arange(1, len(classes.ids) + 1)
    return places
