"""`segue serve`: a model behind HTTP, with a page."""

from __future__ import annotations

from typing import Annotated

import typer

from segue.cli._stories import USE
from segue.cli._tell import tell
from segue.cli.options import Device, ModelPlace

STORY, PLACE = USE, 10


def command(
    model: ModelPlace,
    other: Annotated[
        str | None, typer.Argument(metavar="MODEL2", help="A second model, to compare on the page.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen at; 0.0.0.0: from anywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0: any free one.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", envvar="SEGUE_TOKEN", help="Word that clients have to send."
        ),
    ] = None,
    megapixels: Annotated[
        float,
        typer.Option("--megapixels", metavar="N", min=0.01, max=89, help="Largest image, in million pixels."),
    ] = 64.0,
    megabytes: Annotated[
        float, typer.Option("--megabytes", metavar="N", min=0.01, max=1024, help="Largest file, in MiB.")
    ] = 32.0,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", min=1, help="Images under way at once; more get 429.")
    ] = 64,
    device: Device = "auto",
) -> None:
    """Answer requests with a model: an API, and a page to drop images on.

    segue serve model

    segue serve model grown --port 9000

    The page is at the address that is printed, the API under /docs.
    Ctrl-C stops the server; what is under way is finished first.
    """
    from segue.core.extras import needed
    from segue.deploy.serve.limits import MEBI, Limits

    for package in ("fastapi", "uvicorn", "python_multipart"):
        needed(package, "serve", "segue serve")
    from segue.deploy.serve.run import address, bind, is_local, open_models, serve

    with bind(host, port) as bound:
        models = open_models([model, *([other] if other else [])], device)
        place = address(bound)
        if not token and not is_local(bound):
            tell("Remark: whoever reaches this machine can use the model. --token TOKEN keeps others out.")
        names = " and ".join(f"{one.name} ({len(one.predictor.classes)} channels)" for one in models)
        tell(f"Serving {names} at {place}/ , API at {place}/docs. Ctrl-C stops.")
        key = "-H 'Authorization: Bearer TOKEN' " if token else ""
        tell(f"Next: curl {key}-F file=@photo.jpg {place}/predict -o mask.png")
        serve(models, bound, Limits(int(megabytes * MEBI), int(megapixels * 1e6), queue), token)
