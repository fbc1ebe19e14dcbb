"""docs/performance.md, from the stored measurements of `python -m benchmarks`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.core.errors import UserError
from segue.core.records import atomic_file

Record = Mapping[str, Any]


def write_performance(records: Path, page: Path) -> None:
    """Write the page of all measurements in a folder of records."""
    text = performance_page({name: _read(records / f"bench-{name}.json") for name in SECTIONS})
    with atomic_file(page) as file:
        file.write(text.encode())


def performance_page(records: Mapping[str, Record]) -> str:
    """The whole page; a record per section."""
    intro = [
        "# What things cost",
        "",
        "Made by `make bench` from the measurements under `results/`. Machines differ: what counts are the",
        "ratios. Times are medians over the rounds of one run in which both sides took turns, and a ratio is",
        "the quotient of the two medians (before they are rounded for the table).",
    ]
    return "\n".join([*intro, *(line for name in SECTIONS for line in SECTIONS[name](records[name]))]) + "\n"


def _read(path: Path) -> Record:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        name = path.stem.removeprefix("bench-")
        raise UserError(
            f"{path} is missing: make it with python -m benchmarks {name} --save {path}"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no record of a measurement: {error}.") from error


def _machine(record: Record) -> str:
    versions = record["versions"]
    return f"torch {versions['torch']}, {versions['device']}, {versions['threads']} threads"


def _section(title: str, record: Record, name: str, words: str = "") -> list[str]:
    command = f"python -m benchmarks {name}{words} --save results/bench-{name}.json"
    return ["", f"## {title}", "", f"`{command}` ({_machine(record)})."]


def _losses(record: Record) -> list[str]:
    rows = [
        [
            row["what"], row["channels"], f"{row['seconds']:.3f}", f"{row['plain_seconds']:.3f}",
            f"**{row['plain_seconds'] / row['seconds']:.1f}x**",
            f"{row['memory']:.0f}", f"{row['plain_memory']:.0f}",
            f"**{row['plain_memory'] / row['memory']:.0f}x**",
        ]
        for row in record["rows"]
    ]  # fmt: skip
    head = ["loss", "channels", "s", "plain", "faster", "MiB", "plain", "leaner"]
    return [
        *_section("Pixel losses", record, "losses"),
        "",
        f"Value and gradient at {record['side']} px from maps at stride {record['stride']}, batch"
        f" {record['batch']},",
        "beside the same formulas written the plain way: interpolate both models' logits, then the loss, by",
        "autograd. Ours works strip by strip and keeps a gradient as large as the map (losses/_one_pass.py).",
        "",
        *_table(head, rows),
    ]


def _step(record: Record) -> list[str]:
    time, memory = [], []
    for row in record["rows"]:
        name = f"{row['about']}, {row['channels']} channels ({row['rounds']} rounds)"
        seconds = row["seconds"]
        caf = (seconds["caf fused"] + seconds["caf alone"]) / 2
        time.append([
            name, *(f"{s:.2f}" for s in (seconds["floor"], seconds["mib plain"], seconds["mib"], caf)),
            f"{seconds['mib'] / seconds['floor']:.2f}", f"**{caf / seconds['floor']:.2f}**",
            f"**{seconds['mib plain'] / caf:.2f}x**",
        ])  # fmt: skip
        mib = row["memory"]
        memory.append([
            name, *(f"{mib[key]:.0f}" for key in MEMORY),
            f"{mib['mib plain'] / mib['mib']:.2f}x",
            *(f"**{mib['mib plain'] / mib[key]:.2f}x**" for key in ("caf fused", "caf checkpointed")),
        ])  # fmt: skip
    return [
        *_section("An iteration", record, "step"),
        "",
        "The floor is the network alone: student forward and backward, teacher forward, no losses, no",
        "optimiser. The plain way is MiB as one would write it: upsampled logits, a copy of the model as",
        "teacher, batch norm as it is; loop and optimiser are the same. CAF is the mean of its iterations",
        "with and without fusion.",
        "",
        *_table(
            ["s", "floor", "plain MiB", "MiB", "CAF", "MiB by floor", "CAF by floor", "CAF faster"], time
        ),
        "",
        "Memory is what a process grows by; that of CAF is with fusion.",
        "",
        *_table(
            [
                "MiB", "floor", "plain MiB", "MiB", "CAF", "CAF, `train.checkpointing`", "MiB leaner",
                "CAF leaner", "checkpointed",
            ],
            memory,
        ),
        *_missed(record["rows"]),
    ]  # fmt: skip


MEMORY = ("floor", "mib plain", "mib", "caf fused", "caf checkpointed")


def _missed(rows: Sequence[Record]) -> list[str]:
    """Where CAF takes more than half the memory of the plain way, which was the aim."""
    missed = [
        f"- {row['about']}, {row['channels']} channels: {lean:.2f}x, checkpointed {leanest:.2f}x"
        for row in rows
        for lean, leanest in [
            [row["memory"]["mib plain"] / row["memory"][key] for key in ("caf fused", "caf checkpointed")]
        ]
        if lean < 2
    ]
    if not missed:
        return []
    return [
        "",
        "The aim was half the memory of the plain way (2x leaner). CAF misses it here:",
        "",
        *missed,
        "",
        "With a large network and a batch of one, weights, gradients, momentum and teacher are most of the",
        "memory, and losses save none of that; CAF's layer adds its own.",
    ]


def _caf(record: Record) -> list[str]:
    rows = [
        [about, row["what"], *(f"{row[side]:.{digits}f} {row['unit']}" for side in ("plain", "ours")),
         f"**{row['ours'] / row['plain']:.2f}**"]
        for about, cases in record["cases"].items()
        for row in cases
        for digits in [0 if row["unit"] == "MiB" else 3]
    ]  # fmt: skip
    return [
        *_section("CAF against MiB", record, "caf"),
        "",
        "Both as they are here: the ratio is the price of CAF alone. Memory is that of the whole process.",
        "",
        *_table(["network", "what", "MiB", "CAF", "ratio"], rows),
    ]


def _plan(record: Record) -> list[str]:
    rows = [
        [
            name,
            f"`{case['command']}`",
            f"{case['planned']:.0f}",
            f"{case['measured']:.0f}",
            f"{case['planned'] / case['measured']:.2f}",
        ]
        for name, case in record["cases"].items()
    ]
    return [
        *_section("What a plan says, and what training takes", record, "plan"),
        "",
        "Peak memory on the CPU, in MiB: what `segue plan` prints, and what a process really grows by.",
        "",
        *_table(["case", "recipe", "planned", "measured", "planned by measured"], rows),
    ]


def _export(record: Record) -> list[str]:
    rows = [
        [
            row["what"], row["network"], f"{row['largest']:.1e}", f"{row['scale']:.3g}",
            f"{100 * row['changed']:.3g} %",
            *(f"{row[side]:.1f}" if row[side] else "-" for side in ("eager", "compiled", "onnx", "int8")),
            f"**{row['eager'] / row['onnx']:.2f}x**",
            f"**{row['eager'] / row['int8']:.2f}x**" if row["int8"] else "-",
            "-" if row["agreement"] is None else f"{100 * row['agreement']:.2f} %",
            "-" if row["miou"] is None else f"{row['miou'][0]:.1f} → {row['miou'][1]:.1f}",
        ]
        for row in record["rows"]
    ]  # fmt: skip
    head = [
        "model", "network", "largest difference", "largest logit", "changed pixels", "torch", "compiled",
        "onnxruntime", "int8", "onnxruntime faster", "int8 faster", "same in int8", "mIoU → int8",
    ]  # fmt: skip
    remarks = [f"- {row['what']}: {row['remark']}" for row in record["rows"] if row["remark"]]
    return [
        *_section("Exported models", record, "export"),
        "",
        "ONNX files against the model: logits and classes in float32 at two sizes and batch 2, then",
        "milliseconds per image (256 px, ResNet-101 512, EfficientNet-Lite0 128) on one thread, with",
        "normalisation, upsampling and mask. Models of methods are trained briefly on scenes 4-2. The two",
        "large networks and the tiny ones of other libraries have random weights: their agreement in 8 bit",
        "says nothing of a trained one, and the times of tiny ones are mostly those of calls.",
        *([record["note"]] if "note" in record else []),
        "",
        *_table(head, rows),
        *(["", *remarks] if remarks else []),
    ]


def _data(record: Record) -> list[str]:
    rows = [[row["what"], row["beside"], _share(row)] for row in record["rows"]]
    return [
        *_section("Reading data", record, "data", f" --images {record['images']}"),
        "",
        *_table(["what", "beside", "ours takes"], rows),
    ]


def _serve(record: Record) -> list[str]:
    rows = [
        [
            row["what"], f"{row['per_second']:.0f}", f"{row['p50']:.0f}", f"{row['p99']:.0f}",
            f"{row['cpu']:.1f}", row["refused"], len(row["errors"]),
            *(f"{row['memory'][place]:.0f}" for place in (0, 1, -1)),
        ]
        for row in record["rows"]
    ]  # fmt: skip
    head = [
        *("server", "answers/s", "p50 ms", "p99 ms", "CPU ms", "429", "errors"),
        *("MiB, warm", "after a turn", "at the end"),
    ]
    seconds = record["seconds"]
    return [
        *_section("A server under load", record, "serve", f" --seconds {seconds}"),
        "",
        f"{record['about']}, {record['clients']} clients on loopback: {seconds:g} s for `segue serve`, a",
        "third of that for each of the others, in turns. The others are FastAPI without batching, an image",
        "at a time in the loop or in threads: plain with the model as it is, folded with the network as",
        "`segue serve` has it (norms folded into convolutions, channels last).",
        "",
        f"- `segue serve` answers **{record['ratio']:.2f}x** as many requests as the better plain server.",
        f"- Of that, folding and channels last are {record['ratio'] / record['ratio_folded']:.2f}x (better",
        f"  folded by better plain server); batching, with one thread for the network, is"
        f" **{record['ratio_folded']:.2f}x**.",
        "",
        *_table(head, rows),
    ]


def _share(row: Record) -> str:
    if row["theirs"] is None:
        return f"{row['ours']:.1%} of the time"
    return f"{row['ours'] / row['theirs']:.3g} of its time"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Markdown; the first column reads from the left."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


SECTIONS: dict[str, Callable[[Record], list[str]]] = {
    "losses": _losses,
    "step": _step,
    "caf": _caf,
    "plan": _plan,
    "data": _data,
    "export": _export,
    "serve": _serve,
}
