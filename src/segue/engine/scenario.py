"""Which classes arrive when, as a recipe says it: no image is read, and no torch is needed."""

from __future__ import annotations

from segue.core import plugins
from segue.core.classes import ClassTable
from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.scenario import Scenario, make_scenario
from segue.data.datasets.base import SegDataset


def scenario_of(config: RunConfig, classes: ClassTable, dataset: SegDataset | type[SegDataset]) -> Scenario:
    """The scenario of a recipe over the classes of its data set."""
    wanted = config.scenario
    offline = plugins.declared(config.method.name).offline
    if wanted.learned:
        if isinstance(wanted.split, str):
            raise UserError("scenario.learned goes with a split that lists the classes of each step.")
        classes = classes.beside(str(name) for group in wanted.split for name in group)
    policies = (wanted.mode, wanted.void, wanted.future, wanted.order, offline)
    own = {"orders": dataset.orders, "divided_as": dataset.divided_as}
    return make_scenario(classes, wanted.split, *policies, **own)


def check_split(config: RunConfig) -> None:
    """Refuse a split that the data set cannot have, where its classes are known without its images."""
    kind: type[SegDataset] = plugins.find("dataset", config.scenario.dataset)
    classes = kind.known_classes(config.data)
    if classes is not None:
        scenario_of(config, classes, kind)
