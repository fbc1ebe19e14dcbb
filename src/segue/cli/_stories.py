"""The three things that people come for: what `segue` shows without a verb, and how its help is parted."""

from __future__ import annotations

from rich.console import Console

TRY = "Try it"
USE = "Train and use a model"
STUDY = "Compare methods"

COMMANDS = {
    TRY: {
        "segue demo": "four methods on a small built-in data set; a few minutes",
        "segue list methods": "what there is; also datasets, backbones, recipes",
    },
    USE: {
        "segue data check --on folder data.root=FOLDER": "are the images usable?",
        "segue train caf --on folder --split a/b data.root=FOLDER model.pretrained=true": "",
        "segue extend MODEL DATA --out GROWN": "new classes, without the old images",
        "segue predict MODEL photos/ --out predicted": "masks, areas and overlays",
        "segue report RUN": "scores and pictures of a run as one page",
        "segue export RUN model.onnx": "the model for other programs, or as a folder",
        "segue serve MODEL": "an API, and a page to drop images on",
    },
    STUDY: {
        "segue compare --on scenes --split 5-2 --methods mib,caf --seeds 3": "",
        "segue check my_method.py": "does a method of your own keep its promises?",
    },
}
"""commands of each story, with the reason where the command does not say it"""


def print_stories(about: str) -> None:
    """The stories with their commands, in 80 columns."""
    Console().print(about, highlight=False)
    console = Console(highlight=False, soft_wrap=True)  # a command that is broken cannot be copied
    for story, commands in COMMANDS.items():
        console.print(f"\n[bold]{story}[/]")
        for command, why in commands.items():
            console.print(f"  [cyan]{command}[/]" + (f"  [dim]# {why}[/]" if why else ""))
    console.print("\nsegue --help lists all verbs. segue VERB --help explains one.")
