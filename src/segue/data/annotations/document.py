"""JSON files of a stranger: read with care, every field checked before it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from segue.core.errors import UserError, reason
from segue.core.ordinary import read_ordinary
from segue.data.annotations.base import show


def read_document(path: Path) -> dict[str, Any]:
    """The object in a JSON file, in any encoding of Unicode."""
    return object_of(read_json(path), path)


def object_of(document: object, path: Path) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise UserError(f"{path} holds {kind(document)}; an annotation file holds an object {{...}}.")
    return document


def read_json(path: Path) -> Any:
    """Whatever a JSON file holds."""
    try:
        content = read_ordinary(path)
        text = content.decode(json.detect_encoding(content))
        return json.loads(text)  # NaN too: whoever needs the number refuses it
    except OSError as error:
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8, or export it again."
        ) from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be an annotation file.") from error
    except ValueError as error:
        raise UserError(
            f"{path} is not valid JSON: {error}. It may be cut off or damaged; export it again."
        ) from error


def kind(value: object) -> str:
    """What a JSON value is, for messages."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def get_list(document: dict[str, Any], field: str, where: str) -> list[Any]:
    value = document.get(field)
    if not isinstance(value, list):
        raise UserError(f"{where}: '{field}' should be a list, not {_found(document, field)}.")
    return value


def get_text(document: dict[str, Any], field: str, where: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: '{field}' should be text, not {_found(document, field)}.")
    return value


def _found(document: dict[str, Any], field: str) -> str:
    return show(document[field]) if field in document else "missing"


def as_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} should be an object {{...}}, not {show(value)}.")
    return value


def get_size(document: dict[str, Any], fields: tuple[str, str], where: str) -> tuple[int, int] | None:
    """Width and height, or None where the file leaves both open."""
    values = [document.get(field) for field in fields]
    if values == [None, None]:
        return None
    for field, value in zip(fields, values, strict=True):
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
        if not whole or value < 1:
            raise UserError(f"{where}: '{field}' should be a whole number from 1, not {show(value)}.")
    width, height = (int(value) for value in values)
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise UserError(
            f"{where}: {show(width)} x {show(height)} pixels are more than the {limit} that are read safely."
        )
    return width, height


def points_of(value: object, where: str) -> np.ndarray:
    """[[x, y], ...] as N x 2 float64."""
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise UserError(f"{where}: points should be a list of [x, y], not {show(value)}.")
    return numbers_of([number for pair in value for number in pair], where).reshape(-1, 2)


def numbers_of(values: list[Any], where: str) -> np.ndarray:
    """A flat list of finite numbers as float64."""
    if not set(map(type, values)) <= {int, float}:
        odd = next(value for value in values if type(value) not in (int, float))
        raise UserError(f"{where}: coordinates should be numbers, but one is {show(odd)}.")
    try:
        numbers = np.array(values, dtype=np.float64)
    except OverflowError:
        numbers = np.array([np.inf])
    if not np.isfinite(numbers).all():
        raise UserError(f"{where}: a coordinate is not finite. Mend or remove that shape.")
    return numbers


def has_area(points: np.ndarray) -> bool:
    """Whether N x 2 points span more than a line."""
    if len(points) < 3:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.abs(points).max() or 1.0
        away = points / scale - points[0] / scale  # no overflow, whatever the numbers
        far = away[np.argmax((away**2).sum(axis=1))]
        return bool(np.abs(away[:, 0] * far[1] - away[:, 1] * far[0]).max() > 1e-12)
