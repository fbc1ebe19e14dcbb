"""Networks from elsewhere on the command line: what was found is shown, what has grown is given back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segue.core.progress import Display
    from segue.deploy.model import Model
    from segue.deploy.teachers.outer_model import OuterModel


def open_source(
    text: str, words: Sequence[str], device: str, display: Display, teaches: bool = False
) -> tuple[Model | OuterModel, Model | OuterModel | str, list[str]]:
    """The model that a text names, what to extend, and the words that do not describe the network.

    `teaches`: a student is wanted of it.
    """
    from segue.deploy.adopt_words import adopt_words, found_table, teacher_table
    from segue.deploy.families import is_source
    from segue.deploy.load import load
    from segue.deploy.teachers import is_outer, open_teacher, refuse_growing, teacher_of

    said, others = adopt_words(words)
    if not teaches:
        refuse_growing(text)
    if is_outer(text):
        teacher = open_teacher(text, **said)
        for line in teacher_table(teacher):
            display.say(line)
        return teacher, teacher, others
    model = load(text, device, **said)
    if teaches:
        teacher = teacher_of(model, text)
        return teacher, teacher, others
    if not is_source(text):
        return model, text, others
    for line in found_table(model, text, said):
        display.say(line)
    return model, model, others


def write_native(model: Model, folder: Path, display: Display) -> None:
    """Beside the weights of a model folder the files of the network's own library, if it has one."""
    from segue.deploy.families import FAMILIES
    from segue.deploy.folder_layout import NATIVE
    from segue.models.adopted.network import AdoptedNetwork

    network, native = model.network, folder / NATIVE
    if not isinstance(network, AdoptedNetwork) or network.adoption.source["kind"] not in FAMILIES:
        return
    library = network.adoption.source["kind"]
    if network.fusion is not None or len(network.settled):
        display.say(f"The fusion layer has no place in {library}: there is no {native}.")
        return
    model.save_native(native)
    display.say(f"For code of {library}: {native}")
