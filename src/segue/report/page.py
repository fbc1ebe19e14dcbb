"""Pages that need nothing beside themselves: one template each, one style for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from segue.core.records import write_text
from segue.report.comparison import format_number


def render_page(template: str, **values: Any) -> str:
    """A page as text."""
    environment = Environment(
        loader=PackageLoader("segue.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    return environment.get_template(template).render(**values)


def write_page(path: str | Path, page: str, root: Path | None = None) -> Path:
    """Write a page whole or not at all, inside the folder `root` if one is given; returns where it lies."""
    path = Path(path)
    write_text(path, page, root)
    return path
