"""The model card: README.md of a model folder."""

from __future__ import annotations

from segue.deploy.history import History
from segue.deploy.model_file import Header

FRONT = """---
library_name: segue
pipeline_tag: image-segmentation
license: other
tags: [semantic-segmentation, class-incremental-learning]
---
"""


def model_card(name: str, header: Header, history: History | None) -> str:
    """Classes by step, the method and how to use the model, as Markdown."""
    lines = [FRONT, f"# {_plain(name)}", ""]
    lines += [f"A semantic-segmentation model with {len(header.classes) - 1} classes, made with Segue.", ""]
    lines += ["## Use", "", "```python", "import segue", ""]
    lines += [f'model = segue.load("{_plain(name)}")', 'mask = model.predict("photo.jpg")', "```", ""]
    lines += ["## Classes", "", "| step | classes |", "|---|---|"]
    steps = history.steps if history is not None else (header.classes[1:],)
    lines += [f"| {index} | {', '.join(map(_plain, step))} |" for index, step in enumerate(steps)]
    lines.append("")
    if history is not None:
        kept = sum(tensor.numel() * tensor.element_size() for tensor in history.kept.values())
        lines += ["## Training", "", f"Method: `{_plain(history.method)}`.", ""]
        lines += [f"Kept between steps beside the network: {kept:,} bytes; no images.", ""]
    lines += [
        "## Licence",
        "",
        "Not stated: fill in `license` above before you share the model.",
        "",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    for mark in ("\\", "|", "`", "<", ">", "[", "]", "*", "_", '"', "\n"):
        text = text.replace(mark, " " if mark == "\n" else f"\\{mark}" if mark in "|*_[]" else "")
    return text
