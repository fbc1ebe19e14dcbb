"""The doc below a field or constant stands alone: "size of the global batch", not "of all processes"."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "segue"

PREPOSITIONS = """
    about above across after against along among around as at before behind below beneath beside besides
    between beyond by despite down during except for from if in inside instead into like near of off on
    onto out outside over per since than through throughout till to toward towards under until up upon
    via when while with within without
"""
PRONOUNS = """
    both each he her hers him his i it its me mine my our ours she that their theirs them these they
    this those us we what whatever where which who whoever whom whose you your yours
"""
DANGLING = frozenset(f"{PREPOSITIONS} {PRONOUNS}".split())


def field_docs(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string literal below an assignment in a class or module."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef | ast.Module):
            continue
        for field, doc in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.Assign | ast.AnnAssign) and isinstance(doc, ast.Expr):
                value = getattr(doc.value, "value", None)
                if isinstance(value, str):
                    yield doc.lineno, value


def dangling(source: str) -> list[str]:
    return [
        f"{line}: {doc}"
        for line, doc in field_docs(source)
        if doc.split()[0].strip(",.:;").lower() in DANGLING
    ]


def test_a_doc_that_leans_on_its_name_is_found() -> None:
    fields = ["share: float", '"""of each batch"""', "size: int", '"""number of images"""']
    source = "\n    ".join(["class Config:", *fields])
    assert dangling(source) == ["3: of each batch"]
    assert dangling('ROWS = 3\n"""Those of a table."""\n') == ["2: Those of a table."]


def test_every_doc_of_a_field_stands_alone() -> None:
    sources = sorted(SOURCE.rglob("*.py"))
    assert sum(1 for path in sources for _ in field_docs(path.read_text(encoding="utf-8"))) > 300
    found = {
        str(path.relative_to(SOURCE)): lines
        for path in sources
        if (lines := dangling(path.read_text(encoding="utf-8")))
    }
    if found:
        pytest.fail("\n".join(f"{path}:{line}" for path, lines in found.items() for line in lines))
