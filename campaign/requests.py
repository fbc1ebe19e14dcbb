"""Requests of strangers: schemathesis makes them from the server's own OpenAPI; none may end in a 5xx."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from PIL import Image

from campaign.small_run import model_folder
from campaign.strategies import BYTES, damaged
from campaign.tally import Tally, try_all
from segue.deploy.load import load
from segue.deploy.serve.app import create_app
from segue.deploy.serve.predictors import served, staged

PLAIN = 5
"""tries of an operation without parameters: all are the same"""


def _pictures() -> st.SearchStrategy[bytes]:
    """Images of all kinds, whole and damaged, and what is none."""
    whole = []
    for form, mode, size in (
        *(("PNG", "RGB", (9, 7)), ("PNG", "L", (40, 3)), ("PNG", "RGBA", (16, 16)), ("PNG", "P", (5, 5))),
        *(("JPEG", "RGB", (24, 16)), ("JPEG", "CMYK", (8, 8)), ("BMP", "RGB", (6, 6)), ("GIF", "P", (7, 7))),
    ):
        content = io.BytesIO()
        Image.fromarray(np.arange(size[0] * size[1], dtype=np.uint8).reshape(size)).convert(mode).save(
            content, form
        )
        whole.append(content.getvalue())
    known = st.sampled_from(whole)
    return st.one_of(known, known.flatmap(damaged), BYTES)


def _of_first_model(case: Any) -> Any:
    """A request that names no model: most names are those of none."""
    case.query = {name: value for name, value in (case.query or {}).items() if name != "model"}
    return case


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """A few for each operation without parameters, all others for those that have some."""
    import schemathesis

    pictures = _pictures()
    schemathesis.openapi.media_type("image/*", pictures, aliases=["image/png", "image/jpeg"])
    schemathesis.openapi.format("binary", pictures.map(lambda content: content.decode("latin-1")))
    folder = model_folder(place)
    app = create_app(served([(folder, staged(load(folder, "cpu")))]))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [each.ok() for each in schema.get_all_operations()]
    rich = [each for each in operations if each.body or each.query]

    def work(case: Any) -> None:
        response = case.call()
        if response.status_code >= 500:
            tally.fail("5xx", f"{case.method} {case.path}: {response.status_code} {response.text[:300]}")
        elif response.status_code >= 400:
            tally.refused += 1

    modes = schemathesis.GenerationMode
    for number, operation in enumerate(operations):
        right, wrong = (
            operation.as_strategy(generation_mode=mode) for mode in (modes.POSITIVE, modes.NEGATIVE)
        )
        share = max(1, tries // (3 * len(rich))) if operation in rich else PLAIN
        for cases in (right.map(_of_first_model), right, wrong):
            with suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
                try_all(tally, cases, work, share, seed + number)
