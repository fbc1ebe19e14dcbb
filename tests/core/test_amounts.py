"""Sizes and times in words, around the borders of their units."""

import pytest

from segue.core.amounts import size_text, time_text

HOUR = 3600


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**19, "1.5 MiB"), (2000 * 2**30, "2000.0 GiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.2, "< 1 s"), (89, "89 s"), (91, "2 min"), (3569, "59 min"), (3590, "1 h 00 min"),
     (9.5 * HOUR, "9 h 30 min"), (12 * HOUR, "12 h"), (99 * HOUR, "99 h"), (240 * HOUR, "10.0 days")],
)  # fmt: skip
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text
