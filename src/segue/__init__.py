"""Segue: class-incremental semantic segmentation.

The front door: these names are what a user or a plug-in imports. They are loaded when they are first used,
so that `import segue` costs nothing and does not wait for torch. Losses are in `segue.losses`, the contract
suite for methods of one's own is `segue.testing`.

Examples:
    >>> import segue
    >>> model = segue.load("runs/first")
    >>> mask = model.predict("photo.jpg")
    >>> mask.save("mask.png")
    >>> model.save("model.safetensors")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; the same names are in _HOMES
    from segue.core.classes import ClassTable
    from segue.core.declaration import About
    from segue.core.errors import UserError
    from segue.core.records import read_run
    from segue.core.scenario import Scenario, Step, make_scenario
    from segue.data.batches import Batch
    from segue.data.datasets.base import Sample, SegDataset
    from segue.data.steps import open_dataset, step_data
    from segue.deploy.adopt import adopt
    from segue.deploy.examine import examine
    from segue.deploy.extend import extend
    from segue.deploy.load import load
    from segue.deploy.model import Model
    from segue.deploy.prediction import Prediction
    from segue.engine.recipe import resolve
    from segue.engine.run import run
    from segue.methods.base import Method
    from segue.models.segmenter import Segmenter

__version__ = "0.1.0"

__all__ = [
    "About",
    "Batch",
    "ClassTable",
    "Method",
    "Model",
    "Prediction",
    "Sample",
    "Scenario",
    "SegDataset",
    "Segmenter",
    "Step",
    "UserError",
    "__version__",
    "adopt",
    "examine",
    "extend",
    "load",
    "make_scenario",
    "open_dataset",
    "read_run",
    "resolve",
    "run",
    "step_data",
]

_HOMES = {
    "About": "segue.core.declaration",
    "Batch": "segue.data.batches",
    "ClassTable": "segue.core.classes",
    "Method": "segue.methods.base",
    "Model": "segue.deploy.model",
    "Prediction": "segue.deploy.prediction",
    "Sample": "segue.data.datasets.base",
    "Scenario": "segue.core.scenario",
    "SegDataset": "segue.data.datasets.base",
    "Segmenter": "segue.models.segmenter",
    "Step": "segue.core.scenario",
    "UserError": "segue.core.errors",
    "adopt": "segue.deploy.adopt",
    "examine": "segue.deploy.examine",
    "extend": "segue.deploy.extend",
    "load": "segue.deploy.load",
    "make_scenario": "segue.core.scenario",
    "open_dataset": "segue.data.steps",
    "read_run": "segue.core.records",
    "resolve": "segue.engine.recipe",
    "run": "segue.engine.run",
    "step_data": "segue.data.steps",
}


if not TYPE_CHECKING:  # else every misspelt name would pass a type checker

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'segue' has no attribute '{name}'")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # from now on an ordinary attribute
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
