"""The command line: verbs -> functions. What a user can mend ends with a clear message and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import segue
from segue.core.errors import UserError

app = typer.Typer(
    name="segue",
    help="Teach a segmentation model new classes without the old images and without forgetting.",
    epilog="Start with: segue demo. Then: segue train caf --on voc --split 15-5 data.root=FOLDER",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="METHOD", help="A method (caf), a method file (mine.py), a recipe (my.yaml) or a run folder."
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as optim.lr_next=0.001 data.root=FOLDER."),
]
ON = typer.Option("--on", metavar="DATASET", help="Data set: see 'segue list datasets'.")
SPLIT = typer.Option("--split", help="15-5: 15 classes first, then 5 at a time; or 'cat,dog/person'.")
On = Annotated[str | None, ON]
SplitOption = Annotated[str | None, SPLIT]
ModeOption = Annotated[str | None, typer.Option("--mode", help="overlapped, disjoint or sequential.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of everything random.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs per row, with seeds 0, 1, ...")]
Page = Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Also write a Markdown page.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]


def _resolve(
    target: str,
    on: str | None,
    split: str | None,
    mode: str | None,
    seed: int | None,
    words: list[str] | None,
):
    """The recipe that a target and its options name, and the run folder if the target is one."""
    from segue.engine.recipe import find_recipe, resolve
    from segue.engine.restore import stored_recipe

    settings = _settings(words, seed)
    if (Path(target) / "recipe.yaml").is_file():
        if on or split or mode:
            raise UserError("--on, --split and --mode do not go with a run folder: its recipe says them.")
        return stored_recipe(target, settings), Path(target)
    if target.endswith((".yaml", ".yml")):
        return resolve(None, on, split, mode, settings, file=find_recipe(target)), None
    if "/" in target and not target.endswith(".py"):
        raise UserError(f"{target} is not a run folder: it has no recipe.yaml.")
    return resolve(target, on, split, mode, settings), None


def _settings(words: list[str] | None, seed: int | None) -> list[str]:
    return [*(words or []), *([] if seed is None else [f"train.seed={seed}"])]


@app.command()
def train(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run folder; runs/METHOD-DATASET-SPLIT-MODE-SEED if not given."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a run with this recipe stopped.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in that folder.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Train and test every step of a scenario.

    segue train caf --on voc --split 15-5 --mode overlapped data.root=FOLDER
    """
    from segue.engine.folder import default_folder
    from segue.engine.progress import Display
    from segue.engine.run import run

    config, folder = _resolve(target, on, split, mode, seed, words)
    folder = out or folder or default_folder(config)
    record = run(config, folder, resume, overwrite, device, Display())
    _print_tables([record])
    Console().print(
        f"Records: {folder}/steps. Page: segue report {folder}", highlight=False, markup=False, soft_wrap=True
    )


@app.command()
def show(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    seed: Seed = None,
) -> None:
    """Print the resolved recipe: everything that a run would use."""
    from segue.core.config import to_yaml

    config, _ = _resolve(target, on, split, mode, seed, words)
    print(to_yaml(config), end="")


@app.command("eval")
def evaluate(
    folder: RunFolder,
    words: Words = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Step to test; the last finished one if not given.")
    ] = None,
    strategies: Annotated[
        str | None, typer.Option("--strategies", help="Ways to predict, such as skip,zero,concat (CAF).")
    ] = None,
    device: Device = "auto",
) -> None:
    """Test a finished step of a run anew, class by class.

    segue eval runs/caf-voc-15-5-overlapped-s42 --strategies skip,zero,concat
    """
    from segue.core.metrics import iou, step_scores
    from segue.engine.progress import Display
    from segue.engine.restore import evaluate_run

    chosen = list(dict.fromkeys(word.strip() for word in strategies.split(","))) if strategies else None
    confusions, names, num_first = evaluate_run(folder, step, words or [], device, Display(), chosen)
    table = Table(title=Text(f"IoU after a step of {folder}"), caption="in percent; a dash: no ground truth")
    table.add_column("class")
    for name in confusions:
        table.add_column(name if chosen else "IoU", justify="right")
    per_class = [iou(confusion) for confusion in confusions.values()]
    for name, values in zip(names, zip(*per_class, strict=True), strict=True):
        table.add_row(Text(name), *map(_percent, values))
    scores = [step_scores(confusion, num_first) for confusion in confusions.values()]
    table.add_section()
    for name in ("old", "new", "all", "old_bg", "all_bg"):
        values = (_percent(getattr(score, name)) for score in scores)
        table.add_row(name.replace("_bg", " with background"), *values)
    Console().print(table)


@app.command()
def export(
    folder: RunFolder,
    out: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The file to write, such as model.safetensors.")
    ],
    step: Annotated[
        int | None, typer.Option("--step", help="After which step; the last finished one if not given.")
    ] = None,
) -> None:
    """Write the model of a run as one file, without what only training needs."""
    from segue.deploy.model_file import save_model
    from segue.engine.restore import restore_deployed

    model, classes = restore_deployed(folder, step)
    save_model(model, classes, out)
    count = sum(parameter.numel() for parameter in model.parameters())
    Console().print(
        f"{out}: {len(classes)} channels, {count:,} parameters", highlight=False, markup=False, soft_wrap=True
    )


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders to compare.")],
    out: Annotated[
        Path, typer.Option("--out", help="The page to write; a name in .md gives the tables as Markdown.")
    ] = Path("report.html"),
) -> None:
    """Compare runs: tables here, and one self-contained HTML page with curves and pictures."""
    from segue.core.records import read_run
    from segue.report import write_markdown, write_report

    runs = [read_run(folder) for folder in folders]
    if empty := [run.name for run in runs if not run.steps]:
        raise UserError(f"{empty[0]} has no finished step yet.")
    page = write_markdown(runs, out) if out.suffix == ".md" else write_report(runs, out)
    _print_tables(runs)
    _tell(f"Page: {page}")


@app.command("demo")
def run_demo(
    words: Words = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs and page.")] = Path("demo"),
    seed: Seed = None,
    device: Device = "auto",
) -> None:
    """Show the point in a few minutes: fine-tuning forgets, MiB and CAF keep. No data needed."""
    from segue.demo import demo

    demo(out, _settings(words, seed), device)


@app.command("ablate")
def run_ablations(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE",
            help="table3, table5, table6, table7, figure6-kd, figure6-ad, variants, layers; all.",
        ),
    ],
    on: Annotated[str, ON],
    split: SplitOption = None,
    mode: ModeOption = None,
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("runs/ablations"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run the rows of the paper's ablation tables, the paper's numbers beside ours.

    segue ablate table3 --on scenes --seeds 3

    Rows that are done are not run again. KEY=VALUE settings may follow the tables.

    Without --split and --mode: the paper's on voc, 5-2 overlapped on scenes.
    """
    from segue.ablate import ablate

    words = [word for word in tables if "=" in word]
    names = [word for word in tables if "=" not in word]
    ablate(names, on, split, mode, words, seeds, out, page, device)


@app.command("compare")
def run_comparison(
    on: Annotated[str, ON],
    split: Annotated[str, SPLIT],
    words: Words = None,
    mode: ModeOption = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all, or names and .py files: mib,caf,mine.py.")
    ] = "all",
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("runs/compare"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run many methods in one setting: a line each, with scores, forgetting, time and memory.

    segue compare --on scenes --split 4-2 --methods all --seeds 3

    Runs that are done are not run again. KEY=VALUE settings apply to all methods.
    """
    from segue.compare import compare_methods

    names = [name.strip() for name in methods.split(",")]
    compare_methods(names, on, split, mode, words or [], seeds, out, page, device)


@app.command("bench")
def run_bench(
    what: Annotated[
        Literal["caf", "methods"],
        typer.Argument(
            metavar="WHAT",
            help="caf: CAF against MiB and the plain network. methods: all against fine-tuning.",
        ),
    ],
    words: Words = None,
    case: Annotated[
        str | None, typer.Option("--case", help="caf: resnet101 or small; both if not given.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="NAMES", help="methods: those to measure, such as mib,caf."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Measurements of each kind: 5 for caf, 15 for methods."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="methods: write the figures as JSON.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Measure time and memory, as ratios from one run.

    segue bench caf --case small method.params.layer.bottleneck=4

    segue bench methods --methods mib,caf
    """
    foreign = (
        {"--methods": methods, "--save": save} if what == "caf" else {"--case": case, "KEY=VALUE": words}
    )
    if said := [name for name, value in foreign.items() if value]:
        raise UserError(f"{said[0]} does not go with 'segue bench {what}'.")
    if what == "methods":
        from segue.bench.methods import bench_methods

        names = [name.strip() for name in (methods or "all").split(",")]
        bench_methods(names, rounds or 15, save, device)
    else:
        from segue.bench.caf import CASES, bench_caf

        if case is not None and case not in CASES:
            raise UserError(f"There is no case '{case}': choose {' or '.join(CASES)}.")
        bench_caf([case] if case else list(CASES), words or [], rounds or 5, device)


@app.command("list")
def list_things(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "recipes"],
        typer.Argument(metavar="WHAT", help="methods, datasets, backbones or recipes."),
    ],
) -> None:
    """List methods, data sets, backbones or recipes."""
    from segue.listing import LISTINGS

    Console().print(LISTINGS[what]())


def _print_tables(runs: list) -> None:
    from segue.report import metrics_table, results_table

    console = Console()
    console.print(results_table(runs))
    console.print(metrics_table(runs))


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"


def _version(wanted: bool) -> None:
    if wanted:
        print(segue.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _tell(message: str) -> None:
    Console().print(message, markup=False, highlight=False, soft_wrap=True)


def _complain(message: str, style: str = "") -> None:
    Console(stderr=True).print(message, style=style, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Entry point of the `segue` command."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(1)
    except (UserError, OSError) as error:
        _complain(f"error: {error}", "red")
        sys.exit(2)
    except Exception as error:
        from segue.engine.train import Interrupted

        if not isinstance(error, Interrupted):
            raise
        _complain("Stopped; all is saved. Go on with the same command (for train, add --resume).")
        sys.exit(130)


if __name__ == "__main__":
    main()
