"""One kind of error for everything that a user can mend."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Bad input. The message is for the user; the command line shows it without a traceback.

    Examples:
        >>> import segue
        >>> try:
        ...     segue.load("no-such-folder")
        ... except segue.UserError as error:
        ...     print(error)
        There is no model no-such-folder: name a model folder, a run folder or NAME.safetensors.
    """


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""marks that steer a terminal, or turn the direction of what follows; not tabs and ends of lines"""


def shown(text: str) -> str:
    """Text as a terminal may show it: names come from strangers' files, and may hold what steers one."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def suggest(word: str, choices: Iterable[str], before: str = "") -> str:
    """Return " Did you mean 'x'?" for the nearest choice, or the list of choices if nothing is near.

    `before` is what all choices begin with, and is not compared.
    """
    choices = [str(choice) for choice in choices]
    near = difflib.get_close_matches(str(word), choices, n=1, cutoff=0.5)
    if near:
        return f" Did you mean '{before}{near[0]}'?"
    if len(choices) <= 20:
        return f" Valid: {', '.join(before + choice for choice in choices)}." if choices else ""
    return ""


LONGEST = 200
"""letters of a value that a message shows"""


def cut(text: str) -> str:
    """Text as a message shows it: the beginning of what is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} letters)"


def brief(value: Any) -> str:
    """A value as a message shows it."""
    try:
        return cut(repr(value))
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        return "a number with thousands of digits"


def reason(error: Exception) -> str:
    """Why something failed, without the number that the system has for it and the path that stands beside."""
    told = error.strerror if isinstance(error, OSError) else None
    return (told or str(error) or type(error).__name__).rstrip(".")


def os_sentence(error: OSError) -> str:
    """A system error that nobody expected, as a sentence: the file first."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{cut(' -> '.join(names))}: {reason(error)}." if names else f"{reason(error)}."


MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")
"""words of torch where memory runs out, for which it has no error of its own on a CPU"""


def memory_ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out, also in a process that was to read images."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the second is torch's
        return True
    told = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in told for words in MEMORY_WORDS)
