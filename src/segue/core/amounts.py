"""Sizes and times in words."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Bytes in the largest unit that they fill.

    Examples:
        >>> size_text(1536), size_text(5 * 2**30)
        ('1.5 KiB', '5.0 GiB')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} B"


def time_text(seconds: float) -> str:
    """A time with as many digits as an estimate deserves.

    Examples:
        >>> time_text(40), time_text(3600 * 2.5), time_text(3600 * 51)
        ('40 s', '2 h 30 min', '51 h')
    """
    if 0 < seconds < 1:
        return "< 1 s"
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 10 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 100 else f"{seconds / 86400:.1f} days"
