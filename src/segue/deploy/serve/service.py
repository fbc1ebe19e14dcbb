"""From a received file to an answer: decode, wait for the network, encode; and how many may be on the way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from segue.core.errors import UserError
from segue.data.image_files import opened
from segue.data.images import rgb_pixels
from segue.deploy.serve.answers import Answer, photo, view_size
from segue.deploy.serve.batching import Batcher
from segue.deploy.serve.limits import Limits, Refused, busy
from segue.deploy.serve.metrics import Metrics
from segue.deploy.serve.predictors import Served, Size

Wanted = Literal["mask", "areas", "both", "view"]
IMAGE = Path("The image")
"""name of a client's file in messages; its own may hold anything"""
T = TypeVar("T")


@dataclass(frozen=True)
class Prepared:
    """A decoded image, ready for the networks."""

    size: Size
    inputs: list[Tensor]
    """input of each network that is to see it"""
    photo: str
    """image for the page, as base64; empty unless the page asks"""


class Service:
    """The models of a server, with the threads that work for them."""

    def __init__(self, models: Sequence[Served], limits: Limits) -> None:
        self.models, self.limits, self.metrics = list(models), limits, Metrics()
        self.under_way = 0
        self.stopping = False
        self._batcher = Batcher(limits.batch, self.metrics.batch)
        self._pool = ThreadPoolExecutor(
            min(4, os.cpu_count() or 1),
            thread_name_prefix="segue-image",
            initializer=torch.set_num_threads,  # of these threads: the network has the cores
            initargs=(1,),
        )

    @property
    def healthy(self) -> bool:
        return self._batcher.alive and not self.stopping

    def close(self) -> None:
        """Finish what is under way, then stop."""
        self.stopping = True
        self._batcher.close()
        self._pool.shutdown()

    def chosen(self, name: str | None) -> Served:
        """The model of a name, or the first."""
        if name is None:
            return self.models[0]
        for one in self.models:
            if one.name == name:
                return one
        names = " and ".join(repr(one.name) for one in self.models)
        raise Refused(404, f"There is no model {name[:100]!r} here: {names} can be asked.")

    async def predict(self, content: bytes, wanted: Wanted, name: str | None) -> bytes | dict[str, Any]:
        """A PNG or a JSON document, in time."""
        asked = self.models if wanted == "view" else [self.chosen(name)]
        with self._place():
            began = time.perf_counter()
            try:
                answer = await asyncio.wait_for(
                    self._answer(content, wanted, asked), self.limits.answer_seconds
                )
            except TimeoutError as error:
                message = f"The image was not answered within {self.limits.answer_seconds:g} seconds."
                raise Refused(503, message, {"Retry-After": "10"}) from error
            self.metrics.answered(time.perf_counter() - began)
            return answer

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self.under_way >= self.limits.queue:
            raise busy(f"{self.under_way} images are under way, as many as this server takes.")
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _answer(
        self, content: bytes, wanted: Wanted, asked: Sequence[Served]
    ) -> bytes | dict[str, Any]:
        prepared = await self._apart(lambda: self._prepare(content, wanted, asked))
        waiting = [
            asyncio.wrap_future(self._batcher.submit(one.predictor, input))
            for one, input in zip(asked, prepared.inputs, strict=True)
        ]
        scores = await asyncio.gather(*waiting)
        return await self._apart(lambda: _encode(prepared, wanted, asked, scores))

    async def _apart(self, work: Callable[[], T]) -> T:
        """Work in a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _prepare(self, content: bytes, wanted: Wanted, asked: Sequence[Served]) -> Prepared:
        decoded: dict[int, np.ndarray] = {}
        for one in asked:
            if (bits := one.predictor.bits) not in decoded:
                decoded[bits] = decode(content, self.limits.pixels, bits)
        pixels = decoded[asked[0].predictor.bits]
        inputs = [one.predictor.prepare(decoded[one.predictor.bits]) for one in asked]
        size = (pixels.shape[0], pixels.shape[1])
        return Prepared(size, inputs, photo(pixels) if wanted == "view" else "")


def decode(content: bytes, most: int, bits: int) -> np.ndarray:
    """The pixels of a client's file, upright; its size is looked at before it is decoded."""
    try:
        with opened(IMAGE, content) as image:
            width, height = image.size
            pixels = rgb_pixels(image, str(IMAGE), bits) if width * height <= most else None
    except UserError as error:
        bomb = isinstance(error.__cause__, Image.DecompressionBombError)
        raise Refused(413 if bomb else 422, str(error)) from error
    if pixels is None:
        raise Refused(413, _too_many(width, height, most))
    return pixels


def _too_many(width: int, height: int, most: int) -> str:
    millions = width * height / 1e6
    return f"The image has {width} x {height} = {millions:.0f} million pixels; {most / 1e6:g} are accepted."


def _encode(
    prepared: Prepared, wanted: Wanted, asked: Sequence[Served], scores: Sequence[Tensor]
) -> bytes | dict[str, Any]:
    size = view_size(prepared.size) if wanted == "view" else prepared.size
    answers = [Answer(one, *one.predictor.answer(own, size)) for one, own in zip(asked, scores, strict=True)]
    if wanted == "mask":
        return answers[0].mask()
    if wanted != "view":
        return answers[0].document(mask=wanted == "both")
    return {
        "width": size[1],
        "height": size[0],
        "image": {"width": prepared.size[1], "height": prepared.size[0]},
        "photo": prepared.photo,
        "models": [answer.view() for answer in answers],
    }
