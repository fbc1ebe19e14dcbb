"""A contact sheet: images, masks as they were drawn, and labels as a model is taught them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from segue.core.classes import IGNORE, ClassTable
from segue.core.scenario import Scenario, Step
from segue.report.page import render_page, write_page
from segue.report.pictures import PALETTE, Picture, coloured, fitted, picture

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
    classes, colours = scenario.classes, colour_of_ids(scenario.classes)
    labels = scenario.label_table(step, part)[mask]
    of_label = np.full(256, IGNORE, dtype=np.uint8)
    of_label[0] = 0
    of_label[1 : len(step.seen) + 1] = colours[list(step.seen)]
    present = [class_id for class_id in (*step.new, *classes.ids) if (mask == class_id).any()]
    photo = fitted(Image.fromarray(image), Image.Resampling.BILINEAR)
    return Card(
        key,
        picture(photo, f"{key}: image"),
        picture(coloured(Image.fromarray(colours[mask])), f"{key}: mask as drawn"),
        picture(coloured(Image.fromarray(of_label[labels])), f"{key}: labels in this step"),
        ", ".join(dict.fromkeys(classes.names[class_id] for class_id in present)),
    )


def write_contact_sheet(
    path: Path, scenario: Scenario, step: Step, part: Part, cards: Sequence[Card], images: int
) -> Path:
    """Write the page; `images` is the number of images that the step has."""
    classes = scenario.classes
    colours = colour_of_ids(classes)
    names = {classes.names[class_id]: int(colours[class_id]) for class_id in classes.ids}
    legend = {"background": 0, **names, "ignored or void": IGNORE}
    page = render_page(
        "contact.html.j2",
        title=f"{classes.dataset}, step {step.index} of {len(scenario) - 1}, {scenario.mode}, {part}",
        new=", ".join(classes.names[class_id] for class_id in step.new),
        policy={"mode": scenario.mode, "void": scenario.void},
        part=part,
        cards=cards,
        images=images,
        legend={name: "#" + bytes(PALETTE[3 * c : 3 * c + 3]).hex() for name, c in legend.items()},
    )
    return write_page(path, page)


def colour_of_ids(classes: ClassTable) -> np.ndarray:
    """The place in the palette of each of 256 ids: background 0, classes from 1, the rest 255."""
    colours = np.full(256, IGNORE, dtype=np.uint8)
    if classes.background is not None:
        colours[classes.background] = 0
    colours[list(classes.ids)] = np.arange(1, len(classes.ids) + 1)
    return colours
