"""The studies whose records are in results/: each makes its table and its page again, and trains nothing."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from segue.engine.recipe import find_recipe
from segue.report import MethodTable
from segue.studies.ablate import ablate
from segue.studies.compare import compare_methods
from segue.studies.tune import tune_methods

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
WEIGHTS = "model.weights=weights/mobilenetv2_100.safetensors"
WORDS = ["data.root=data/voc256", WEIGHTS]
PARTS = ["scenario.hold_out=0.2", "method.params.layer_since=1"]
"""rows that share a step 0, on held-out training images"""
VOC256 = {"15-1": ("voc256.yaml", "voc256-15-1"), "15-5": ("voc256-15-5.yaml", "voc256-15-5")}
"""by split: the recipe, and how its pages are called"""
METHODS = "finetune,lwf,ewc,lwf_mc,pi,rw,ilt,mib,incseg,plop,sdr,ssul,caf,dft,joint"
"""the methods of these studies"""
SECOND = {
    "15-1": "mib,mib-similar,caf,caf-similar,caf-imagined,caf-no-memory,finetune,joint",
    "15-5": "mib,mib-similar,caf,caf-imagined,caf-no-memory,plop",
}
"""by split the methods that have records under the second protocol"""
SECOND_WORDS = [WORDS[0], "model.weights=weights/resnet18.safetensors"]
SECOND_TUNED = "mib,caf,plop"
"""the methods whose weight was chosen under the second protocol, on 15-1"""
CAF_IDEAS = Path("results/voc256/caf-imagined")
ABLATIONS = ("scenes-ablations.md", "voc256-15-1-ablations.md")


def ablation(page: Path) -> None:
    given = {"seeds": 3, "page": page, "console": _quiet()}
    if page.name == "scenes-ablations.md":
        ablate(["all"], "scenes", out=Path("results/ablations"), **given)
    else:
        given |= {"recipe": find_recipe("voc256.yaml"), "out": Path("results/voc256/ablations")}
        ablate(["table3"], "voc", "15-1", "overlapped", words=[*PARTS, *WORDS], **given)


def on_scenes(page: Path | None = None) -> MethodTable:
    given = {"seeds": 3, "out": Path("results/compare"), "page": page, "console": _quiet()}
    (table,) = compare_methods(METHODS.split(","), "scenes", ["4-2"], **given)
    return table


def on_voc(split: str, methods: str = METHODS, page: Path | None = None) -> MethodTable:
    given = {"seeds": 3, "out": Path("results/voc256/compare"), "page": page, "console": _quiet()}
    recipe = find_recipe(VOC256[split][0])
    (table,) = compare_methods(methods.split(","), "voc", [split], words=WORDS, recipe=recipe, **given)
    return table


def on_new_methods(page: Path) -> None:
    """The methods of 2022 to 2024 beside MiB and CAF, on held-out training images."""
    given = {"seeds": 1, "out": Path("results/voc256/new-methods"), "page": page, "console": _quiet()}
    words = ["scenario.hold_out=0.2", *WORDS]
    names = ["mib", "caf", "dkd", "star", "rcil", "mbs", "acil"]
    compare_methods(names, "voc", ["15-1"], words=words, recipe=find_recipe("voc256.yaml"), **given)


def on_second_protocol(split: str, page: Path | None = None) -> MethodTable:
    """What has been run so far of voc256-2."""
    given = {"seeds": 1, "out": Path("results/voc256-2/compare"), "page": page, "console": _quiet()}
    given |= {"words": SECOND_WORDS, "recipe": find_recipe("voc256-2.yaml")}
    (table,) = compare_methods(SECOND[split].split(","), "voc", [split], **given)
    return table


def second_tuning(page: Path) -> None:
    given = {"words": SECOND_WORDS, "out": Path("results/voc256-2/tuning"), "by": "hIoU", "page": page}
    tune_methods(
        find_recipe("voc256-2.yaml"), SECOND_TUNED.split(","), "voc", "15-1", console=_quiet(), **given
    )


def on_fusion(page: Path) -> None:
    """The fusion layer with maps of 32 x 32, from step 0, with and without distillation."""
    given = {"out": Path("results/voc256-2/fusion"), "page": page, "console": _quiet(), "words": SECOND_WORDS}
    names = ["plain", "fusion", "distilled", "both"]
    compare_methods(names, "voc", ["15-5"], recipe=find_recipe("voc256-2-fusion.yaml"), **given)


def on_caf_ideas(page: Path) -> None:
    """CAF with features that are kept, imagined or missing beside MiB, on held-out training images."""
    given = {"seeds": 3, "out": CAF_IDEAS, "page": page, "console": _quiet()}
    words = ["scenario.hold_out=0.2", *WORDS]
    names = ["mib", "caf", "caf-alone", "caf-imagined"]
    compare_methods(names, "voc", ["15-1"], words=words, recipe=find_recipe("voc256-caf-ideas.yaml"), **given)


def on_mosaics(page: Path | None = None) -> MethodTable:
    """Other data with the recipe of VOC 15-1 as it is."""
    given = {"seeds": 3, "out": Path("results/mosaic"), "page": page, "console": _quiet()}
    recipe = find_recipe("voc256.yaml")
    (table,) = compare_methods(
        ["mib", "caf"], "examples/mosaic.py", ["8-1"], words=[WEIGHTS], recipe=recipe, **given
    )
    return table


def tuning(split: str, page: Path) -> None:
    recipe, out = find_recipe(VOC256[split][0]), Path("results/voc256/tuning")
    used = None if split == "15-1" else out / "voc-15-1-overlapped" / "choice.yaml"
    given = {"words": WORDS, "out": out, "page": page, "console": _quiet(), "used": used}
    tune_methods(recipe, ["all"], "voc", split, **given)


def assert_in_docs(page: Path, settings: bool = False) -> None:
    """The page that was made is the one in the docs, with the same charts.

    Its table of settings shows those that are not the defaults of the day the page was made: only
    `make results-check` asks for that.
    """
    text, stored = (path.read_text(encoding="utf-8") for path in (page, RESULTS / page.name))
    assert _numbers(text) == _numbers(stored)
    assert not settings or text == stored
    made, kept = (
        {path.name: texts_of_svg(path) for path in (folder / "figures").glob(f"{page.stem}-*")}
        for folder in (page.parent, RESULTS)
    )
    assert made == kept and sorted(made) == sorted(re.findall(r"]\(figures/(.*?)\)", text))


def _numbers(page: str) -> list[str]:
    """All parts of a page but its tables of settings."""
    return re.split(r"\*\*Settings\*\*\n\n(?:\|.*\n)+", page)


def texts_of_svg(path: Path) -> list[str]:
    """What a chart says; where exactly it is drawn depends on the version of matplotlib."""
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"))


def _quiet() -> Console:
    return Console(file=io.StringIO())
