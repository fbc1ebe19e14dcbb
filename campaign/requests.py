"""Requests of strangers: schemathesis makes them from the server's own OpenAPI; none may end in a 5xx."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis.errors import Unsatisfiable

from campaign.inputs import finished_run
from campaign.tally import Tally, try_all
from segue.deploy.load import load
from segue.deploy.serve.app import create_app
from segue.deploy.serve.predictors import served, staged


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """`tries` in all, shared among the operations."""
    import schemathesis

    app = create_app(served([(place / "model", staged(load(finished_run(place))))]))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [each.ok() for each in schema.get_all_operations()]
    for number, operation in enumerate(operations):

        def work(case: Any) -> None:
            response = case.call()
            if response.status_code >= 500:
                tally.fail("5xx", f"{case.method} {case.path}: {response.status_code} {response.text[:300]}")
            elif response.status_code >= 400:
                tally.refused += 1

        modes = schemathesis.GenerationMode
        for mode in (modes.POSITIVE, modes.NEGATIVE):
            share = max(1, tries // (2 * len(operations)))
            cases = operation.as_strategy(generation_mode=mode)
            with suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
                try_all(tally, cases, work, share, seed + number)
