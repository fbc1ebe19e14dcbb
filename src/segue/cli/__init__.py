"""The command line: a verb is a file of this folder.

`train.py` is `segue train`, `data/check.py` is `segue data check`; each has a function `command`, and says
where it stands in the help: `STORY` and `PLACE`. `options.py` is what verbs share. Verbs import what is slow
inside their function, so that help and typing errors are quick. What a user can mend ends with a clear
message and exit code 2.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
import typer.core
from rich.console import Console

import segue
from segue.cli._mistakes import UsageError, sentence
from segue.cli._stories import COMMANDS, print_stories
from segue.core import plugins
from segue.core.errors import UserError, memory_ran_out, os_sentence, shown
from segue.core.launch import end_with_torchrun, this_launch

STOPPED = 130
"""exit code after Ctrl-C"""
STOPPED_OUTSIDE = "Stopped. The same command starts again, or goes on if it can."
NO_MEMORY = (
    "Memory ran out. What was saved is there. Ask for less at a time: smaller images or crops, smaller"
    " batches, or tiles."
)
GRACE_SECONDS = 1.0
"""head start of the first process: torchrun ends the others after it, so that what all say is said once"""

ABOUT = "Segue teaches a segmentation model new classes, without the old images and without forgetting."
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
PLACES: dict[tuple[str | None, str], tuple[int, int, str]] = {}
"""place of each verb in the help of its group: by story, then as its file says"""


class Verbs(typer.core.TyperGroup):
    """Verbs and groups of verbs in the order of their stories."""

    def list_commands(self, context: typer.Context) -> list[str]:
        return sorted(super().list_commands(context), key=lambda name: PLACES[self.name, name])

    def main(self, args: Sequence[str] | None = None, **rest: Any) -> NoReturn:
        """Mistakes in options are ours to say: typer would draw boxes."""
        try:
            code = super().main(args=args, **{**rest, "standalone_mode": False})
        except UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
                sys.exit(2)
            _fail(UserError(sentence(error, sys.argv[1:] if args is None else args)), 2)
        except typer.Abort as error:  # what typer makes of an EOFError
            raise error.__cause__ or error.__context__ or error from None
        sys.exit(code)


app = typer.Typer(
    name="segue",
    cls=Verbs,
    help=ABOUT,
    epilog="Exit codes: 0 done, 1 the answer is no (check, data check) or a run failed, 2 the command is"
    " wrong, 130 stopped by Ctrl-C.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings=HELP_OPTIONS,
)


def _add_verbs(group: typer.Typer, package: ModuleType) -> None:
    """Every module of a folder is a verb, and every folder in it a group of verbs."""
    for found in pkgutil.iter_modules(package.__path__):
        if found.name == "options" or found.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{found.name}")
        name = found.name.rstrip("_")  # `import` is a word of Python: its file is import_.py
        story, place = getattr(module, "STORY", None), getattr(module, "PLACE", 0)
        PLACES[group.info.name, name] = [*COMMANDS, None].index(story), place, name
        if found.ispkg:
            verbs = typer.Typer(
                name=name, cls=Verbs, help=module.__doc__, no_args_is_help=True, rich_markup_mode="rich"
            )
            _add_verbs(verbs, module)
            group.add_typer(verbs, rich_help_panel=story)
        else:
            group.command(name, rich_help_panel=story)(module.command)


_add_verbs(app, sys.modules[__name__])


def _version(wanted: bool) -> None:
    if wanted:
        print(segue.__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print_stories(ABOUT)
    elif this_launch().size > 1 and context.invoked_subcommand != "train":
        raise UserError(
            f"Several processes can train, but not {context.invoked_subcommand}: leave out torchrun."
        )


def _complain(message: str, style: str = "") -> None:
    Console(stderr=True).print(shown(message), style=style, markup=False, highlight=False, soft_wrap=True)


def _fail(error: Exception, code: int) -> NoReturn:
    launch = this_launch()
    if launch.rank > 0:
        time.sleep(GRACE_SECONDS)
    who = f" in process {launch.rank}" if launch.size > 1 else ""
    _complain(f"error{who}: {error}", "red")
    if launch.size > 1:  # at once: torchrun then ends the others before they say the same
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _stopped(message: str) -> None:
    if this_launch().rank == 0:
        _complain(message)


def main() -> None:
    """Entry point of the `segue` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file's name may be no text
    try:
        if this_launch().size > 1:  # every step PyTorch remarks in each process that all parameters were used
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        end_with_torchrun()
        app(prog_name="segue")
    except SystemExit as stop:
        if (own := plugins.own_error(stop)) is not None:  # its exit(0) is no success
            _fail(own, 2)
        if stop.code == STOPPED:  # by Ctrl-C, outside of training
            _stopped(STOPPED_OUTSIDE)
        raise
    except KeyboardInterrupt:  # before typer listens
        _stopped(STOPPED_OUTSIDE)
        sys.exit(STOPPED)
    except BrokenPipeError:
        sys.exit(1)
    except UserError as error:
        _fail(error, 2)
    except OSError as error:
        _fail(UserError(os_sentence(error)), 2)
    except Exception as error:
        from segue.engine.interrupt import Interrupted
        from segue.engine.processes import LostProcess

        if isinstance(error, LostProcess):
            _fail(error, 1)
        if (own := plugins.own_error(error)) is not None:  # a method file of one's own, not Segue, is wrong
            _fail(own, 2)
        if memory_ran_out(error):
            _fail(UserError(NO_MEMORY), 2)
        if not isinstance(error, Interrupted):
            raise
        _stopped("Stopped; all is saved. Go on with the same command (for train, add --resume).")
        sys.exit(STOPPED)
