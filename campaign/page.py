"""docs/reliability.md: what is promised, how it was tested, how often."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = "segue-campaign-1"
PROMISES = {
    "words": ("`KEY=VALUE` words of any kind", "a sentence or a recipe, within 20 s"),
    "recipes": ("recipe files of any content", "a sentence or a recipe, within 20 s"),
    "splits": ("splits and orders of any shape", "a sentence or a scenario"),
    "records": ("step records with wrong values, types or bytes", "a sentence or a table"),
    "manifests": ("manifests with wrong values that match their own hash", "a sentence or a recipe"),
    "checkpoints": (
        "checkpoints with flipped bits, or with a right digest and a wrong tree",
        "loaded only if every value has its type",
    ),
    "model folders": ("model folders with flipped bits or edited JSON", "never loaded"),
    "weights": ("`.pth` files with flipped bits", "a sentence, or weights; no code is run"),
    "failing disk": (
        "a kill, a full disk, an I/O error, half a write, a missing permission, a file that vanishes or"
        " becomes a link, at one call of the system in a run",
        "no half-written file, nothing outside the folder, and a resume that ends as if nothing had happened",
    ),
    "requests": ("requests to `segue serve` made from its own OpenAPI", "no answer of 500 or above"),
    "parsers": ("bytes that reach new lines of the parsers (coverage-guided)", "a sentence or a document"),
}
TEMPLATE = Path(__file__).with_name("reliability.md")


def reliability_page(document: Mapping[str, Any]) -> str:
    """The page of a campaign's figures."""
    lines = ["| attack | promise | tries | refused | failures |", "|---|---|---:|---:|---:|"]
    tries = failures = 0
    for tally in document["classes"]:
        what, promise = PROMISES[tally["name"]]
        failed = sum(tally["failures"].values())
        tries, failures = tries + tally["tries"], failures + failed
        lines.append(f"| {what} | {promise} | {tally['tries']:,} | {tally['refused']:,} | {failed} |")
    lines.append(f"| all | | {tries:,} | | {failures} |")
    found = document["versions"]
    tools = ", ".join(f"{name} {found[name]}" for name in ("segue", "python", "torch"))
    page = TEMPLATE.read_text(encoding="utf-8")
    return page.format(table="\n".join(lines), versions=f"Seed {document['seed']}; {tools}.")
