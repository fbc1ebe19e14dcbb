"""Where a run works: its folder, its processes, and whom it tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from segue.core.progress import Display
from segue.engine.checkpoint import CheckpointStore
from segue.engine.processes import Group


@dataclass(frozen=True)
class Site:
    """Where a run works: its folder, its processes, and whom it tells."""

    folder: Path
    store: CheckpointStore
    group: Group
    display: Display

    @property
    def device(self) -> torch.device:
        return self.group.device
