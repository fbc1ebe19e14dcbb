"""Outputs of frozen stages on disk, for the other runs of a study: `train.cache_disk_gb`.

A file is named by what decides its content: the image, the weights of the frozen stages, and their outputs
for one fixed picture, which show how they compute (format, normalisation, processor). So no run can be given
the outputs of another crop or network. A file begins with a digest of the rest: what has a flipped bit is
computed anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from segue.core.errors import UserError
from segue.core.ordinary import read_ordinary
from segue.core.records import atomic_file

DIGEST_BYTES = 16
ENDING = ".maps"
SIZE = 64
"""pixels of the picture that shows how the stages compute"""

Maps = Callable[[Tensor], Sequence[Tensor]]


class FrozenStore:
    """Maps by the images they are of, below a folder.

    A process adds none beyond `room` bytes. It counts what was there when it began and what it has written.
    """

    def __init__(self, folder: Path, room: float, frozen: Sequence[nn.Module], maps: Maps) -> None:
        """`frozen`: the modules of the frozen stages; `maps` computes their outputs."""
        self.folder, self.room = folder, room
        self._about = _content(frozen, maps)
        self._used = _used(folder)

    def place(self, image_13HW: Tensor) -> Path:
        """The file of an image's maps."""
        image = np.ascontiguousarray(image_13HW.cpu().numpy())
        about = hashlib.sha256(self._about + repr((image.dtype.str, image.shape)).encode()).digest()
        name = hashlib.blake2b(image, digest_size=DIGEST_BYTES, key=about).hexdigest()
        return self.folder / name[:2] / f"{name}{ENDING}"

    def read(self, place: Path) -> tuple[Tensor, ...] | None:
        """Stored maps; None where there are none, or they are not what was stored."""
        try:
            content = read_ordinary(place)
        except (OSError, UserError):
            return None
        if content[:DIGEST_BYTES] != _digest(place, content[DIGEST_BYTES:]):
            return None
        try:
            maps = safetensors.torch.load(content[DIGEST_BYTES:])
        except SafetensorError:
            return None
        return tuple(maps[str(number)] for number in range(len(maps)))

    def write(self, place: Path, maps: Sequence[Tensor]) -> None:
        """Store maps while there is room; a disk that cannot be written only costs time."""
        content = safetensors.torch.save({str(n): each.contiguous() for n, each in enumerate(maps)})
        if self._used.bytes + DIGEST_BYTES + len(content) > self.room:
            return
        try:
            with atomic_file(place) as file:
                file.write(_digest(place, content) + content)
        except UserError:
            return
        self._used.bytes += DIGEST_BYTES + len(content)


@dataclass
class _Used:
    bytes: int


@cache
def _used(folder: Path) -> _Used:
    """What a folder held when this process first looked, and what the process has added."""
    sizes = 0
    for path in folder.glob(f"*/*{ENDING}"):
        with suppress(OSError):  # somebody empties the cache
            sizes += path.stat().st_size
    return _Used(sizes)


def _content(modules: Sequence[nn.Module], maps: Maps) -> bytes:
    """Digest of the weights of modules, and of what they make of a picture."""
    found, states = hashlib.sha256(), [module.state_dict() for module in modules]
    device = next((tensor.device for state in states for tensor in state.values()), None)
    generator = torch.Generator().manual_seed(0)
    picture_13HW = torch.randint(0, 256, (1, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    for name, tensor in (pair for state in states for pair in state.items()):
        found.update(name.encode())
        found.update(_array(tensor))
    for each in maps(picture_13HW.to(device)):
        found.update(_array(each))
    return found.digest()


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _digest(place: Path, content: bytes) -> bytes:
    """Of the content and of its name, which tells whose it is."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES, key=place.stem.encode()).digest()
