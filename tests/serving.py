"""A model whose answer follows from brightness, pictures for it, and a real server in a thread."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from PIL import Image

from segue.core.config import ModelConfig
from segue.deploy.model import Model
from segue.deploy.prepare import Preparation
from segue.deploy.serve.app import create_app
from segue.deploy.serve.connections import guarded
from segue.deploy.serve.limits import Limits
from segue.deploy.serve.predictors import Served, served, staged
from segue.deploy.serve.run import address, bind
from segue.models.segmenter import Output, Segmenter

CLASSES = ("background", "grey", "white")
OTHERS = ("background", "white", "dark")


class Brightness(Segmenter):
    """Black is channel 0, grey 1, white 2; sizes of batches are kept, and a gate may hold it up."""

    def __init__(self) -> None:
        super().__init__(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
        self.batches: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __deepcopy__(self, _: object) -> Brightness:
        return self  # what a server's copy sees is looked at here

    def forward(self, images_B3HW, old_z_BChw=None):
        assert self.gate.wait(20)
        self.batches.append(len(images_B3HW))
        grey = images_B3HW.float().mean(1, keepdim=True) / 255
        centres = torch.tensor([0.0, 0.5, 1.0]).view(1, 3, 1, 1)
        return Output(-20 * (grey - centres).abs())


def bright(classes: tuple[str, ...] = CLASSES, size: int | None = None) -> Model:
    return Model(Brightness().eval(), classes, Preparation(size))


def models(*of: Model, folder: Path = Path("model")) -> list[Served]:
    """Ready to be served, as from folders model, grown."""
    paths = [folder, folder.parent / "grown"]
    return served([(path, staged(model)) for path, model in zip(paths, of, strict=False)])


def photo(height: int = 12, width: int = 20) -> np.ndarray:
    """The left half black, the right half white, the topmost row grey."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[:, width // 2 :] = 255
    pixels[0] = 128
    return pixels


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind, **options)
    return file.getvalue()


@contextmanager
def serving(of: list[Served], limits: Limits | None = None, token: str | None = None) -> Iterator[str]:
    """The address of a server that really listens."""
    limits = limits or Limits()
    bound = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        create_app(of, limits, token), http=guarded(limits), log_level="critical", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield address(bound)
    finally:
        server.should_exit = True
        thread.join(20)
        bound.close()
    assert not thread.is_alive()
