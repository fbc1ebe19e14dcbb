"""A hook of MkDocs: README.md is the front page, and linked files of the repository come along."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ALONG = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "examples/*.py",
    "examples/*.ipynb",
    "recipes/**/*.yaml",
)


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.config_file_path).parent
    places = {"index.md": root / "README.md"}
    for pattern in ALONG:
        places |= {path.relative_to(root).as_posix(): path for path in sorted(root.glob(pattern))}
    for name, path in places.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of the repository become links of the site, where the folder docs is the root."""
    name = page.file.src_uri
    if name in ("index.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        return re.sub(r"\]\(results\)", "](results/index.md)", markdown)
    up = "../" * (name.count("/") + 1)
    return markdown.replace(f"]({up}README.md", f"]({up[3:]}index.md").replace(f"]({up}", f"]({up[3:]}")
