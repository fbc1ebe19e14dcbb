"""What the documentation says is so: links, numbers, and the method that it shows."""

import re
from pathlib import Path

import pytest

from segue.core.records import read_run
from segue.report import markdown_tables
from segue.testing import check_method

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


def test_results_in_the_readme_are_those_of_the_records() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- results:scenes -->\n(.*?)<!-- /results:scenes -->", text, re.S)
    folders = sorted((ROOT / "results" / "scenes").iterdir(), key=lambda folder: folder.name)
    order = {name: index for index, name in enumerate(("finetune", "mib", "caf", "joint"))}
    runs = sorted(map(read_run, folders), key=lambda run: order[run.method])
    assert block is not None and block[1].strip() == markdown_tables(runs, costs=False).strip()


def test_method_in_the_docs_keeps_the_contract(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# my_method.py.*?)```", text, re.S)
    assert code is not None
    path = tmp_path / "my_method.py"
    path.write_text(code[1], encoding="utf-8")
    check_method(str(path))
