"""Every dependency has a lowest version and a bound above, and the newest tested one lies between them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REQUIREMENT = re.compile(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+),<(\d+)(?:;.*)?")
OWN = "segue"
NAMES = {"PIL": "pillow", "yaml": "pyyaml", "python_multipart": "python-multipart"}
"""packages whose modules have other names"""
BROUGHT = {"huggingface_hub": "timm", "markupsafe": "jinja2"}
"""packages that a dependency of ours brings, and which one"""


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    every = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    return [*PROJECT["build-system"]["requires"], *(each for each in every if not each.startswith(f"{OWN}["))]


def bounds() -> dict[str, tuple[str, str]]:
    found = (REQUIREMENT.fullmatch(each) for each in requirements())
    return {each[1]: (each[2], each[3]) for each in found if each is not None}


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def test_every_dependency_has_both_bounds() -> None:
    assert [each for each in requirements() if REQUIREMENT.fullmatch(each) is None] == []


def test_the_tested_versions_lie_between_the_bounds() -> None:
    needed = {REQUIREMENT.fullmatch(each)[1] for each in PROJECT["project"]["dependencies"]}
    lines = (ROOT / "constraints" / "tested.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    assert needed <= tested.keys() <= bounds().keys()
    for name, found in tested.items():
        low, high = bounds()[name]
        assert version(low) <= version(found) < version(high), name


def test_what_is_imported_is_a_dependency() -> None:
    """A package that another one happens to bring has no bounds, and may be gone one day."""
    used: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                used.add(node.module.split(".")[0])
    foreign = used - sys.stdlib_module_names - {OWN, *BROUGHT}
    assert sorted(name for name in foreign if NAMES.get(name, name.replace("_", "-")) not in bounds()) == []


def test_linters_and_dockerfile_know_the_lowest_python() -> None:
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{lowest.replace('.', '')}"
    found = re.search(r"^FROM python:([\d.]+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found is not None and version(found[1]) >= version(lowest)


def test_the_image_gets_what_it_copies() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied and [name for line in copied for name in line.split() if f"!{name}" not in sent] == []
