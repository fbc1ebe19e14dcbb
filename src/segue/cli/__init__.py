"""The command line: verbs -> functions. What a user can mend ends with a clear message and exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

import segue
from segue.cli import data, runs, scenario, studies
from segue.core.errors import UserError

STOPPED = 130
"""exit code after Ctrl-C"""

app = typer.Typer(
    name="segue",
    help="Teach a segmentation model new classes without the old images and without forgetting.",
    epilog="Start with: segue demo. Then: segue train caf --on voc --split 15-5 data.root=FOLDER",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)

for name, command in {
    "train": runs.train,
    "show": runs.show,
    "eval": runs.evaluate,
    "export": runs.export,
    "report": runs.report,
    "demo": studies.run_demo,
    "ablate": studies.run_ablations,
    "compare": studies.run_comparison,
    "bench": studies.run_bench,
    "list": studies.list_things,
}.items():
    app.command(name)(command)
app.add_typer(data.app, name="data")
app.add_typer(scenario.app, name="scenario")


def _version(wanted: bool) -> None:
    if wanted:
        print(segue.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _complain(message: str, style: str = "") -> None:
    Console(stderr=True).print(message, style=style, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of the `segue` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file's name may be no text
    try:
        app()
    except SystemExit as stop:
        if stop.code == STOPPED:  # by Ctrl-C, outside of training
            _complain("Stopped. The same command starts again, or goes on if it can.")
        raise
    except BrokenPipeError:
        sys.exit(1)
    except (UserError, OSError) as error:
        _complain(f"error: {error}", "red")
        sys.exit(2)
    except Exception as error:
        from segue.engine.train import Interrupted

        if not isinstance(error, Interrupted):
            raise
        _complain("Stopped; all is saved. Go on with the same command (for train, add --resume).")
        sys.exit(STOPPED)
