"""docs/reliability.md: what is promised, how it was tested, how often."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from campaign.long_life import long_life_table

FORMAT = "segue-campaign-1"
PROMISES = {
    "words": (
        "`KEY=VALUE` words, nearly right or of any kind",
        "a sentence, or a recipe that is the same after it was stored",
    ),
    "recipes": (
        "recipe files, nearly right or of any content",
        "a sentence, or a recipe that is the same after it was stored",
    ),
    "splits": ("splits and orders, right or of any shape", "a sentence, or steps that bring each class once"),
    "records": ("step records with other or wrong values, types or bytes", "a sentence or a table"),
    "manifests": (
        "manifests with other or wrong values that match their own hash",
        "a sentence, or a scenario whose manifest is the same",
    ),
    "checkpoints": (
        "checkpoints with flipped bits, or with a right digest and another or a wrong tree",
        "loaded only if every value has its type",
    ),
    "model folders": (
        "model folders with flipped bits, with other or wrong values and a right digest, or the same in"
        " other letters",
        "damaged: never loaded; right digest: a sentence, or a model that predicts; other letters: the same",
    ),
    "weights": ("`.pth` files with flipped bits", "a sentence, or weights; no code is run"),
    "failing disk": (
        "a kill, a full disk, an I/O error, half a write, a missing permission, a file that vanishes or"
        " becomes a link, a slow disk, at one call of the system in a run, an extension, an export or a"
        " prediction",
        "no half-written file, nothing outside the folder; done again it ends as if nothing had happened",
    ),
    "full disk": (
        "the same four on a real file system (tmpfs) that is too small, and is enlarged afterwards",
        "a sentence and no half-written file; done again it ends as if nothing had happened",
    ),
    "requests": (
        "requests to `segue serve` made from its own OpenAPI, with images that are whole, damaged or none",
        "no answer of 500 or above",
    ),
    "parsers": (
        "bytes that reach new lines of the parsers (coverage-guided), beginning with right documents",
        "a sentence or a document",
    ),
}
TEMPLATE = Path(__file__).with_name("reliability.md")


def reliability_page(document: Mapping[str, Any], long_life: Mapping[str, Any]) -> str:
    """The page of a campaign's figures, and of those of many extensions."""
    lines = [
        "| attack | promise | tries | refused | failures | CPU s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    tries = failures = 0
    seconds = 0.0
    for tally in document["classes"]:
        what, promise = PROMISES[tally["name"]]
        failed = sum(tally["failures"].values())
        tries, failures = tries + tally["tries"], failures + failed
        seconds += tally["seconds"]
        counts = f"{tally['tries']:,} | {tally['refused']:,} | {failed} | {tally['seconds']:.0f}"
        lines.append(f"| {what} | {promise} | {counts} |")
    lines.append(f"| all | | {tries:,} | | {failures} | {seconds:.0f} |")
    found = document["versions"]
    part = "" if document["share"] == 1 else f", {document['share']:.0%} of the tries of `make campaign`"
    if document["again"]:
        part += f"; run again alone after a mend: {', '.join(document['again'])}"
    tools = ", ".join(f"{name} {found[name]}" for name in ("segue", "python", "torch"))
    page = TEMPLATE.read_text(encoding="utf-8")
    steps = max(len(costs) for costs in long_life["methods"].values())
    return page.format(
        table="\n".join(lines),
        versions=f"One run of {document['minutes']:.0f} minutes{part}; seed {document['seed']}; {tools}.",
        steps=steps,
        long_life=long_life_table(long_life),
    )
