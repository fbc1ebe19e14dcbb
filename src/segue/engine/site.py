"""Where a run works: its folder, its processes, whom it tells, and who may stop it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from segue.core.progress import Display
from segue.engine.checkpoint import CheckpointStore
from segue.engine.interrupt import Interrupts
from segue.engine.processes import Group


@dataclass(frozen=True)
class Site:
    """Where a run works: its folder, its processes, whom it tells, and who may stop it."""

    folder: Path
    store: CheckpointStore
    group: Group
    display: Display
    interrupts: Interrupts

    @property
    def device(self) -> torch.device:
        return self.group.device
