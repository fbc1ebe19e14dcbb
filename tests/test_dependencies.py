"""Every dependency has a lowest version and a bound above, and the newest tested one lies between them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r'"([\w-]+)>=([\d.]+),<(\d+)"')


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_dependencies_have_both_bounds_and_a_tested_version_between() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    bounds = {name: (low, high) for name, low, high in REQUIREMENT.findall(project)}
    needed = project.partition("dependencies = [")[2].partition("]")[0]
    assert set(re.findall(r'"([\w-]+)', needed)) <= bounds.keys()
    lines = (ROOT / "constraints" / "tested.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    assert set(re.findall(r'"([\w-]+)', needed)) <= tested.keys() <= bounds.keys()
    for name, found in tested.items():
        low, high = bounds[name]
        assert version(low) <= version(found) < version(high), name
