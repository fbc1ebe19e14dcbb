"""What a method says of itself: its settings, its paper, the values that it needs on a benchmark.

Nothing here needs torch, so that recipes are made and methods are listed at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from segue.core.config import ReplayConfig
from segue.core.ordinary import user_path


@dataclass(frozen=True)
class ClassMemory:
    """What is kept of each class between steps, in single precision: vectors and numbers."""

    h: int = 0
    """vectors as wide as the map that the classifier sees"""
    z: int = 0
    """vectors as wide as the encoder's last map"""
    numbers: int = 0
    """numbers of any other kind; one in double precision counts as two"""

    def bytes(self, h_channels: int = 256, z_channels: int = 2048) -> int:
        """Memory that a class takes; by default with the widths of the published networks."""
        return 4 * (self.h * h_channels + self.z * z_channels + self.numbers)


@dataclass(frozen=True)
class About:
    """What `segue list methods` says of a method.

    Examples:
        >>> import segue
        >>> segue.About("Mine", paper="Somebody et al., a conference", year=2025).title
        'Mine'
    """

    title: str
    paper: str
    year: int
    published: str = ""
    """published mean IoU of VOC 15-1 overlapped, all classes; * without background, + on another network or
    in another mode (docs/methods.md)"""
    keeps: str = ""
    """state that every run keeps between steps (teacher, importance, prototypes); optional memories are
    sections of `Config` and name themselves"""
    of_class: ClassMemory = ClassMemory()
    """memory that each class takes with the default settings, images aside"""


@dataclass(frozen=True)
class BenchmarkValues:
    """Recipe values that a method needs on one data set and split (None: any split)."""

    dataset: str
    split: str | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Start:
    """What of a method decides its step 0. Runs that agree in it may share one."""

    model: Mapping[str, Any] = field(default_factory=dict)
    """settings that decide the model; empty: plain cross-entropy on the bare network, as in most methods"""
    gathered: Mapping[str, Any] | None = None
    """settings that decide the state gathered during training; None: no such state"""
    replaced: Mapping[str, Any] | None = None
    """settings that decide what replaces the trained model when step 0 ends; None: the model stays"""


def plain_start(config: Any) -> Start:
    """Step 0 is plain cross-entropy on the bare network, whatever the settings."""
    return Start()


class Declaration:
    """What is known of a method without running it: the part of `Method` that recipes and listings need."""

    Config: ClassVar[type]
    """frozen dataclass: the keys of the recipe's `method.params`"""
    about: ClassVar[About]
    benchmark_values: ClassVar[tuple[BenchmarkValues, ...]] = ()
    """recipe values for single benchmarks, mostly from the papers"""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """named sets of values for `Config`, chosen by its field `variant`"""
    offline: ClassVar[bool] = False
    """trains once on all classes"""


def keeps(method: type[Declaration]) -> str:
    """What a method keeps between steps, in words."""
    sections = [getattr(section, "keeps", None) for section in get_type_hints(method.Config).values()]
    optional = [f"{name} (optional)" for name in sections if isinstance(name, str)]
    return ", ".join(filter(None, [method.about.keeps, *optional])) or "nothing"


def keeps_with(method: type[Declaration], params: Any) -> str:
    """What it keeps with these settings: an optional memory may be off."""
    sections = (getattr(params, each.name) for each in dataclasses.fields(params))
    used = [section.kept for section in sections if isinstance(getattr(section, "keeps", None), str)]
    return ", ".join(filter(None, [method.about.keeps, *used])) or "nothing"


def replay_memory(params: Any) -> ReplayConfig | None:
    """The memory of images that a method's settings ask for by a section `memory`; None: none."""
    memory = getattr(params, "memory", None)
    return memory if isinstance(memory, ReplayConfig) and memory.size > 0 else None


def saliency_folder(params: Any) -> Path | None:
    """The folder of saliency maps that a method's setting `saliency` names; None: none are read."""
    folder = getattr(params, "saliency", None)
    return user_path(folder) if isinstance(folder, str) else None
