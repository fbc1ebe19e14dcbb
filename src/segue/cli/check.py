"""`segue check`: does a method keep the promises that training relies on?"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli._stories import STUDY
from segue.cli._tell import print_json, quote, tell_next
from segue.cli.options import Json, Quiet, method_names
from segue.core import plugins
from segue.core.errors import UserError

STORY, PLACE = STUDY, 5


def command(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD",
            help="A method file (mine.py) or a method (caf).",
            autocompletion=method_names,
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings of the method: method.params.kd_weight=3."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Check a method of your own: losses, teacher, predictions, resume.

    segue check my_method.py

    Trains three small steps on random pictures, in seconds.
    Exit code 0: all promises are kept. 1: one is broken. 2: the command or the file is wrong.
    """
    from segue.core.overrides import parse_overrides
    from segue.engine.recipe import check_method_class
    from segue.testing import CHECKS, Bench

    kind = plugins.find("method", method)
    check_method_class(kind, method)
    bench = Bench(kind, _params(parse_overrides(words or [])))
    results = []
    for check in CHECKS:
        results.append({"promise": _promise(check), "failure": _failure(check, bench)})
        if not as_json:
            _print(**results[-1], quiet=quiet)
    if as_json:
        print_json(results)
    failed = sum(result["failure"] is not None for result in results)
    if failed:
        if not as_json:
            Console().print(f"{failed} of {len(results)} checks failed.", highlight=False)
        again = shlex.join(["check", method, *(words or [])])
        tell_next(again, "once it is mended", silent=quiet or as_json)
        raise typer.Exit(1)
    if not as_json:
        Console().print(f"All {len(results)} checks passed.", highlight=False)
    tell_next(f"train {quote(method)} --on scenes --split 5-2", silent=quiet or as_json)


def _params(said: dict[str, Any]) -> dict[str, Any]:
    method = said.get("method", {})
    params = method.get("params", {}) if isinstance(method, dict) else None
    if not isinstance(params, dict) or said != ({"method": {"params": params}} if said else {}):
        raise UserError("Only settings of the method can be changed here: method.params.KEY=VALUE.")
    return params


def _promise(check: Callable[..., None]) -> str:
    return (check.__doc__ or check.__name__).strip().splitlines()[0]


def _failure(check: Callable[[Any], None], bench: Any) -> str | None:
    """Why a check fails, with the line of the method's file where it does; None if it passes."""
    try:
        check(bench)
    except (Exception, SystemExit) as error:  # whatever a method of one's own may raise
        if isinstance(error, AssertionError):
            return str(error)
        return str(plugins.own_error(error) or f"{type(error).__name__}: {error}")
    return None


def _print(promise: str, failure: str | None, quiet: bool) -> None:
    if quiet and failure is None:
        return
    verdict = Text("passed", "green") if failure is None else Text("FAILED", "red")
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(verdict, Text(promise))
    if failure is not None:
        row.add_row("", Text(failure, "bold"))
    Console().print(row)
