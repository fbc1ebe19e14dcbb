"""Errors of the system in words: never a number, never None, never the same path twice."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from segue.core.errors import memory_ran_out, os_sentence, reason

MISSING = os.strerror(errno.ENOENT)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(errno.ENOENT, MISSING, "a/b"), f"a/b: {MISSING}."),
        (OSError(errno.EXDEV, "Invalid link", "a", None, "b"), "a -> b: Invalid link."),
        (OSError(errno.ENOENT, MISSING), f"{MISSING}."),
        (OSError("the disk is on fire"), "the disk is on fire."),
        (OSError(), "OSError."),
        (shutil.Error("several files."), "several files."),
    ],
)
def test_errors_of_the_system_are_sentences(error: OSError, sentence: str) -> None:
    assert os_sentence(error) == sentence and "None" not in sentence


def test_path_of_any_length_is_shown_in_part() -> None:
    assert len(os_sentence(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 100_000))) < 300


def test_reasons_of_other_errors_are_their_words() -> None:
    assert reason(ValueError("no such thing.")) == "no such thing" and reason(ValueError()) == "ValueError"


def test_what_says_that_memory_ran_out() -> None:
    class OutOfMemoryError(RuntimeError):
        """As torch has it."""

    texts = ("CUDA out of memory. Tried", "DefaultCPUAllocator: can't allocate memory: you tried")
    for error in (MemoryError(), OutOfMemoryError("full"), *map(RuntimeError, texts)):
        assert memory_ran_out(error)
    for other in (RuntimeError("shapes differ"), ValueError("out of memory"), KeyError("x")):
        assert not memory_ran_out(other)
