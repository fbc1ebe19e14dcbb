"""What the methods cost: measured by `python -m benchmarks methods`, shown by `segue list methods`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from segue.core.config import Count, NonNegative, Positive, validate
from segue.core.errors import UserError, reason
from segue.core.records import write_json

COSTS_FORMAT = "segue-costs-1"
COSTS_FILE = Path(__file__).parents[1] / "methods" / "costs.json"
"""the figures that come with the package"""


@dataclass(frozen=True)
class Cost:
    """One method; ratios are relative to fine-tuning."""

    time: Positive
    """ratio of the times of a training iteration"""
    memory: NonNegative
    """ratio of the peaks of training memory, without what the process had before"""
    memory_mib: Annotated[float, Field(allow_inf_nan=False)]
    """difference of those peaks"""
    kept_mib: NonNegative | None
    """tensors that outlive a step, besides the model; None where images are kept"""


@dataclass(frozen=True)
class Costs:
    """All methods, and how they were measured."""

    command: str
    versions: dict[str, str]
    setting: str
    threads: Count
    methods: dict[str, Cost]

    def write(self, path: str | Path) -> None:
        write_json(path, {"format": COSTS_FORMAT, **asdict(self)})


def read_costs(path: str | Path = COSTS_FILE) -> Costs:
    """The figures of a file; anything but such a file is refused."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"Cannot read the costs of the methods, {path}: {reason(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(document, Mapping) or document.get("format") != COSTS_FORMAT:
        raise UserError(f"{path} does not hold costs of methods ({COSTS_FORMAT}).")
    rows = document.get("methods")
    if not isinstance(rows, Mapping) or not all(isinstance(row, Mapping) for row in rows.values()):
        raise UserError(f"{path}: 'methods' should hold a row of figures for each method.")
    try:
        costs = {name: validate(Cost, row, f"methods.{name}") for name, row in rows.items()}
        rest = {key: value for key, value in document.items() if key != "format"}
        return validate(Costs, {**rest, "methods": costs}, "")
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
