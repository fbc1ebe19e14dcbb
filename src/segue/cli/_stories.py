"""The three things that people come for: what `segue` shows without a verb, and how its help is parted."""

from __future__ import annotations

from rich.console import Console

TRY = "Try it"
USE = "Train and extend a model"
STUDY = "Compare methods"

COMMANDS = {
    TRY: {
        "segue demo": "four methods on generated images, in a few minutes",
        "segue list methods": "what there is; also datasets, backbones, recipes",
    },
    USE: {
        "segue train caf --on folder --split cat data.root=cats model.pretrained=true": "",
        "segue extend runs/caf-folder-cat-overlapped-s42 dogs --out grown": "",
        "segue predict grown photos --out predicted --overlay": "",
    },
    STUDY: {
        "segue compare --on scenes --split 5-2 --methods mib,caf --seeds 3": "",
        "segue check my_method.py": "a method of your own, in one file",
    },
}
"""two or three commands of each story, in the order of typing, with the reason where it needs saying"""
IN_SHORT = {
    TRY: "no data needed",
    USE: "cats first, then dogs without the images of cats",
    STUDY: "many runs, one table",
}


def print_stories(about: str) -> None:
    """The stories with their commands, in 80 columns."""
    Console().print(about, highlight=False)
    console = Console(highlight=False, soft_wrap=True)  # a command that is broken cannot be copied
    for story, commands in COMMANDS.items():
        console.print(f"\n[bold]{story}[/]: {IN_SHORT[story]}")
        explained = max((len(command) for command, why in commands.items() if why), default=0)
        for command, why in commands.items():
            reason = f"{'':{explained - len(command)}}  [dim]# {why}[/]" if why else ""
            console.print(f"  [cyan]{command}[/]{reason}")
    console.print("\nsegue --help lists all verbs. segue VERB --help explains one.")
