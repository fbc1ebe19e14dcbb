"""The routes of a server."""

from __future__ import annotations

import hmac
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

import segue
from segue.deploy.card_pictures import KIND, CardPicture
from segue.deploy.model_folder import folder_pictures
from segue.deploy.serve import metrics
from segue.deploy.serve.answers import classes_document
from segue.deploy.serve.headers import Outermost
from segue.deploy.serve.intake import FIELD, Intake
from segue.deploy.serve.limits import Limits, Refused
from segue.deploy.serve.predictors import Served
from segue.deploy.serve.service import Service, Wanted

LOG = logging.getLogger("segue.serve")
PAGE = Path(__file__).parent / "page"
FILES = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "stage.js": "text/javascript; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
}
HTML = "text/html; charset=utf-8"
IMAGES = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "properties": {FIELD: {"type": "string", "format": "binary"}},
                }
            },
            "image/*": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
ERROR = {"content": {"application/json": {"example": {"error": "A sentence that says what is wrong."}}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "No image, or an empty one", **ERROR},
    408: {"description": "The file came too slowly", **ERROR},
    413: {"description": "Too many bytes or pixels", **ERROR},
    415: {"description": "Another content type", **ERROR},
    422: {"description": "Not an image that can be read", **ERROR},
    429: {"description": "As many images are under way as the server takes: Retry-After says when", **ERROR},
}


def create_app(models: Sequence[Served], limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """A server of these models; with a token only those who send it are answered."""
    limits = limits or Limits()
    service = Service(models, limits)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="Segue",
        version=segue.__version__,
        description="Semantic segmentation: an image in, the class of every pixel out.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Outermost, count=service.metrics.request)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _wrong_parameter)
    allowed = [Depends(partial(_check_token, token.encode()))] if token else []
    _add_page(app)
    _add_state(app, service, limits, allowed, bool(token))
    _add_predict(app, service, Intake(limits), allowed)
    _add_gallery(app, [folder_pictures(one.path) for one in models], service, allowed)
    return app


def _check_token(token: bytes, authorization: Annotated[str, Header()] = "") -> None:
    scheme, _, sent = authorization.partition(" ")
    right = hmac.compare_digest(sent.strip().encode("utf-8", "replace"), token)  # takes as long if wrong
    if scheme.lower() != "bearer" or not right:
        raise Refused(
            401,
            "This server wants its token: send 'Authorization: Bearer TOKEN'.",
            {"WWW-Authenticate": "Bearer"},
        )


def _add_predict(app: FastAPI, service: Service, intake: Intake, allowed: list[Any]) -> None:
    @app.post(
        "/predict",
        summary="The class of every pixel of an image",
        dependencies=allowed,
        openapi_extra=IMAGES,
        responses={
            200: {"content": {"image/png": {}, "application/json": {}}, "description": "Mask, areas or both"},
            **ERRORS,
        },
    )
    async def predict(
        request: Request,
        answer: Annotated[
            Wanted | None,
            Query(
                description="mask: a PNG of class ids with a palette. areas: JSON, by class name. both: JSON"
                " with the mask in base64. view: all that the page shows. Unless given, the header Accept"
                " decides: areas for application/json, else mask."
            ),
        ] = None,
        model: Annotated[
            str | None, Query(description="Name of the model; the first unless given.", max_length=200)
        ] = None,
    ) -> Response:
        wanted = answer or _accepted(request.headers.get("accept", ""))
        if service.stopping:
            raise Refused(503, "The server is stopping.")
        async with intake.receive(request) as content:
            found = await _predicted(service, content, wanted, model)
        if isinstance(found, bytes):
            return Response(found, media_type="image/png")
        return JSONResponse(found)


async def _predicted(
    service: Service, content: bytes, wanted: Wanted, model: str | None
) -> bytes | dict[str, Any]:
    try:
        return await service.predict(content, wanted, model)
    except Refused:
        raise
    except Exception as error:
        LOG.exception("The server failed on an image of %d bytes.", len(content))
        raise Refused(500, f"The server failed on this image ({type(error).__name__}).") from error


def _accepted(accept: str) -> Wanted:
    """What the header Accept asks for: the first of the two types that it names."""
    for kind in accept.lower().split(","):
        match kind.partition(";")[0].strip():
            case "application/json":
                return "areas"
            case "image/png" | "image/*" | "*/*":
                return "mask"
    return "mask"


def _add_state(app: FastAPI, service: Service, limits: Limits, allowed: list[Any], locked: bool) -> None:
    @app.get("/classes", summary="Names, ids and colours of the classes", dependencies=allowed)
    async def classes() -> dict[str, Any]:
        return {
            "models": [classes_document(one) for one in service.models],
            "limits": {"bytes": limits.bytes, "pixels": limits.pixels},
        }

    @app.get("/health", summary="Whether the server works; needs no token")
    async def health() -> JSONResponse:
        models = [{"name": one.name, "changed_on_disk": one.changed} for one in service.models]
        state = {"status": "ok" if service.healthy else "stopping", "token": locked}
        if any(one["changed_on_disk"] for one in models):
            state["remark"] = "A model has changed on disk since it was loaded: restart to serve the new one."
        document = {**state, "under_way": service.under_way, "models": models}
        return JSONResponse(document, 200 if service.healthy else 503)

    @app.get("/metrics", summary="Counters in Prometheus' text format", dependencies=allowed)
    async def counters() -> Response:
        gauges = [
            ("segue_under_way", "Images that are received and not yet answered.", service.under_way),
            *metrics.memory(),
        ]
        return PlainTextResponse(service.metrics.text(gauges), media_type=metrics.CONTENT_TYPE)


def _add_page(app: FastAPI) -> None:
    def add(route: str, file: str, kind: str) -> None:
        content = (PAGE / file).read_bytes()

        async def shipped() -> Response:
            return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

        app.get(route, include_in_schema=False)(shipped)

    add("/", "index.html", HTML)
    add("/docs", "docs.html", HTML)
    add("/favicon.ico", "icon.svg", "image/svg+xml")
    for name, kind in FILES.items():
        add(f"/page/{name}", name, kind)


def _add_gallery(
    app: FastAPI, pictures: Sequence[Sequence[CardPicture]], service: Service, allowed: list[Any]
) -> None:
    @app.get("/gallery", summary="Pictures of the models' cards", dependencies=allowed)
    async def gallery() -> list[dict[str, str]]:
        return [
            {"model": one.name, "title": picture.text, "url": f"/gallery/{model}/{place}"}
            for model, (one, own) in enumerate(zip(service.models, pictures, strict=True))
            for place, picture in enumerate(own)
        ]

    @app.get("/gallery/{model}/{place}", include_in_schema=False, dependencies=allowed)
    async def picture(model: int, place: int) -> Response:
        if not (0 <= model < len(pictures) and 0 <= place < len(pictures[model])):
            raise Refused(404, "There is no such picture.")
        return Response(pictures[model][place].content, media_type=KIND)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"error": error.sentence}, error.status, error.headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: "There is nothing here: /docs lists what can be asked.",
        405: "This route has other methods: see /docs.",
    }
    return JSONResponse(
        {"error": sentences.get(error.status_code, str(error.detail))}, error.status_code, error.headers
    )


async def _wrong_parameter(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JSONResponse({"error": f"The parameter {first['loc'][-1]!r} is wrong: {first['msg']}."}, 400)
