"""What lies in a model folder, under which names; whatever else lies there is neither read nor replaced."""

from __future__ import annotations

import json
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from segue.core.errors import UserError
from segue.core.ordinary import check_ordinary, read_ordinary
from segue.deploy.card_pictures import PICTURES
from segue.engine.own_files import HALF_WRITTEN

WEIGHTS, KEPT, CONFIG, PREPARATION, CARD = (
    *("model.safetensors", "kept.safetensors", "config.json", "preprocessor_config.json", "README.md"),
)
FILES = (WEIGHTS, KEPT, CONFIG, PREPARATION, CARD)
NATIVE = "native"
"""folder in a model folder: the model as its own library writes it"""
FOLDERS = {
    PICTURES: re.compile(r"\d\.jpg"),
    NATIVE: re.compile(
        r"(config|preprocessor_config|classes|build|model\.safetensors\.index)\.json|README\.md"
        r"|(weights|model(-\d+-of-\d+)?)\.safetensors"
    ),
}
"""folders in a model folder, with the names of the files in them"""
MARK = {"format": "pt", "writer": "segue"}
"""metadata of the weights: whose tensors they are for other libraries, and who wrote the folder"""


def is_model_folder(path: Path) -> bool:
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def check_not_half(path: Path) -> None:
    """Refuse a folder that holds pieces of a model alone, as a broken download or copy leaves them."""
    missing = [name for name in (CONFIG, WEIGHTS) if not (path / name).is_file()]
    if len(missing) == 1:
        raise UserError(f"{path} is not a whole model folder: it has no file {missing[0]}. Copy it again.")


def check_place(folder: Path) -> None:
    """Refuse a place that holds anything but a model folder: nothing else is ever replaced."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder for the model.")
    there = sorted(folder.iterdir()) if folder.exists() else []
    ours = bool(there) and _is_ours(folder)
    for path in there:
        if (ours and path.name in FILES) or _stands_for(path) in FILES:
            continue
        foreign = _foreign(path) if ours and path.name in FOLDERS else path
        if foreign is not None:
            name = foreign.relative_to(folder)
            raise UserError(f"{folder} holds other files ({name}): name a folder of its own for the model.")


def _is_ours(folder: Path) -> bool:
    """Whether Segue wrote a folder: its config says so, or, where a save was stopped, its weights do."""
    try:
        if (folder / CONFIG).exists():
            document = json.loads(read_ordinary(folder / CONFIG))
            return isinstance(document, dict) and isinstance(document.get("segue"), dict)
        check_ordinary(folder / WEIGHTS)
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            return (file.metadata() or {}) == MARK
    except (OSError, ValueError, RecursionError, SafetensorError):
        return False


def _foreign(part: Path) -> Path | None:
    """What no model has written in a folder of a model folder, or the folder itself if it is none."""
    if part.is_symlink() or not part.is_dir():
        return part
    for path in sorted(part.iterdir()):
        name = _stands_for(path) or path.name
        if path.is_symlink() or not path.is_file() or not FOLDERS[part.name].fullmatch(name):
            return path
    return None


def remove_half_written(folder: Path) -> None:
    """Remove what a killed process left of a model's files."""
    for path in folder.iterdir() if folder.exists() else ():
        if _stands_for(path) in FILES:
            path.unlink()


def _stands_for(path: Path) -> str | None:
    """The name of the file that a killed process was writing; None: it is another file, or a link."""
    found = HALF_WRITTEN.fullmatch(path.name)
    return None if found is None or path.is_symlink() or not path.is_file() else found[2]
