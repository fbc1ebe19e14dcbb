"""Wrong options and missing words, said as other mistakes are: one sentence, then how the verb is used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import typer

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""mistake in the words of a command: a class of the copy of click that typer brings"""


def sentence(error: Any, words: Sequence[str]) -> str:
    """What is wrong with the words of a command."""
    verb = error.ctx.command_path if error.ctx is not None else "segue"
    param = getattr(error, "param", None)
    if hasattr(error, "possibilities") and hasattr(error, "option_name"):
        near = f" Did you mean '{error.possibilities[0]}'?" if error.possibilities else ""
        text = f"{verb} has no option {error.option_name}.{near}"
    elif param is not None and hasattr(error, "param_type"):
        text = f"{verb} needs {_shown(param)}: {param.help}"
    elif param is not None:
        text = f"{_typed(param, words)}: {error.message[:1].lower()}{error.message[1:].rstrip('.')}."
    else:
        text = error.format_message()
    if error.ctx is None:
        return text
    return f"{text}\n{error.ctx.get_usage()}\nAll options: {verb} -h"


def _shown(param: Any) -> str:
    """An option or argument as help shows it."""
    named = [param.opts[0]] if param.param_type_name == "option" else []
    return " ".join([*named, param.metavar or param.human_readable_name])


def _typed(param: Any, words: Sequence[str]) -> str:
    """An option as it was typed, with its value."""
    for place, word in enumerate(words):
        if word in param.opts and place + 1 < len(words):
            return shlex.join(words[place : place + 2])
        if word.partition("=")[0] in param.opts:
            return shlex.quote(word)
    return _shown(param)
