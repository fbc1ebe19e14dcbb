"""The model card: README.md of a model folder, as hubs show it.

Names come from data sets, perhaps from strangers'. They stand in code spans, in which Markdown and HTML mean
nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from segue.core.verdict import Verdict
from segue.deploy.card_pictures import place
from segue.deploy.history import History, StepImages
from segue.deploy.model_file import Header

FRONT = """---
library_name: segue
pipeline_tag: image-segmentation
license: unknown
tags: [semantic-segmentation, class-incremental-learning]
---
"""
PLAIN_NAME = re.compile(r"[\w.-]+")
"""names of folders that can stand in a line of code as they are"""


def model_card(
    name: str,
    header: Header,
    history: History | None,
    verdict: Verdict | None = None,
    pictures: Sequence[str] = (),
) -> str:
    """Use, classes by step with their images, before and after, method and licence, as Markdown.

    `pictures` are the texts of the pictures beside the card.
    """
    closed = " Every pixel has a class: none is called background." if header.closed else ""
    count = f"{len(header.classes) - 1} class{'' if len(header.classes) == 2 else 'es'}"
    lines = [
        *(FRONT, f"# {span(name)}", ""),
        f"A semantic-segmentation model with {count}, made with Segue.{closed}",
        *("", "## Use", "", *_use(name), ""),
        *("## Classes", "", *_classes(header, history), ""),
    ]
    if verdict is not None:
        lines += ["## Before and after the last step", "", *_before_and_after(verdict), ""]
        lines += [line for number, text in enumerate(pictures, 1) for line in _picture(number, text)]
    if history is not None:
        lines += ["## Training", "", *_training(history), ""]
    lines += ["## Licence", "", "Not stated: fill in `license` above before you share the model.", ""]
    return "\n".join(lines)


def span(text: str) -> str:
    """Text in a code span, whatever it holds; also inside a table."""
    plain = "".join(" " if unicodedata.category(mark).startswith("C") else mark for mark in text)
    plain = " ".join(plain.replace("`", "'").replace("\\", "/").replace("|", "\\|").split())
    return f"`{plain or ' '}`"


def _use(name: str) -> list[str]:
    place = name if PLAIN_NAME.fullmatch(name) else "model"
    larger = "grown" if place != "grown" else "grown-again"  # a model folder is not written over
    return [
        *("```python", "import segue", ""),
        f'model = segue.load("{place}")',
        'prediction = model.predict("photo.jpg")  # ids, names, overlay(), save(path)',
        f'grown = segue.extend(model, "new-images", "{larger}")',
        "```",
    ]


def _classes(header: Header, history: History | None) -> Iterable[str]:
    steps = history.steps if history is not None else (header.classes[1:],)
    images: Sequence[StepImages | None] = history.images if history is not None else ()
    yield "| step | classes | training images | test images |"
    yield "|---|---|---|---|"
    for index, step in enumerate(steps):
        known = images[index] if index < len(images) else None
        shown = known.shown if known is not None else {}
        names = ", ".join(span(each) + (f" ({shown[each]})" if each in shown else "") for each in step)
        counts = (f"{known.train} | {known.test}") if known is not None else "not known | not known"
        yield f"| {index} | {names} | {counts} |"
    if any(each is not None and each.shown for each in images):
        yield ""
        yield "In brackets: training images of the step that show the class."


def _before_and_after(verdict: Verdict) -> Iterable[str]:
    measure = "IoU" if verdict.labelled else "agreement with the model before the step"
    yield f"Verdict: **{verdict.answer}**. It rests on {verdict.evidence}"
    yield ""
    yield "| class | before | after | 95 % interval of the change | images |"
    yield "|---|---|---|---|---|"
    for one in verdict.old:
        interval = f"{one.low:+.1f} to {one.high:+.1f}"
        yield f"| {span(one.name)} | {one.before:.1f} | {one.after:.1f} | {interval} | {one.images} |"
    for name, score in verdict.new.items():
        yield f"| {span(name)} (new) | - | {'-' if score is None else f'{score:.1f}'} | - | - |"
    yield ""
    yield f"In percent. Old classes: {measure}. New classes: IoU on held-out images."


def _picture(number: int, text: str) -> Iterable[str]:
    return f"![{span(text)}]({place(number)})", ""


def _training(history: History) -> Iterable[str]:
    kept = sum(tensor.numel() * tensor.element_size() for tensor in history.kept.values())
    yield f"Method: {span(history.method)}."
    yield ""
    yield f"Kept between steps beside the network: {kept:,} bytes; no images."
