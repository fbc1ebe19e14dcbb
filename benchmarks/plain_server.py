"""What one writes in ten lines: FastAPI, a model, an image at a time. The yardstick of `segue serve`."""

from __future__ import annotations

import io
import socket
from typing import Literal

import uvicorn
from fastapi import FastAPI, Request, Response
from PIL import Image
from starlette.concurrency import run_in_threadpool

from segue.data.images import mask_picture
from segue.deploy.model import Model

Way = Literal["inline", "threads"]
"""place where an image is worked on: the event loop (`async def`) or FastAPI's threads (`def`)"""


def plain_app(model: Model, way: Way) -> FastAPI:
    """A server without queue, batches or limits."""
    app = FastAPI()

    def answer(content: bytes) -> Response:
        image = Image.open(io.BytesIO(content), formats=["PNG"])
        file = io.BytesIO()
        mask_picture(model.predict(image).ids).save(file, format="PNG")
        return Response(file.getvalue(), media_type="image/png")

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        content = await request.body()
        return answer(content) if way == "inline" else await run_in_threadpool(answer, content)

    return app


def serve_plain(model: Model, bound: socket.socket, way: Way) -> None:
    uvicorn.Server(uvicorn.Config(plain_app(model, way), log_level="warning", access_log=False)).run([bound])
