"""Parsers under a fuzzer: atheris follows which lines an input reaches. `attack` runs it in a process of
its own, which begins with documents that are right."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from campaign.near import recipes
from campaign.small_run import finished_run
from campaign.tally import Tally

ROOT = Path(__file__).parents[1]
DONE = re.compile(r"Done (\d+) runs|stat::number_of_executed_units:\s+(\d+)")
READERS = 4
"""kinds of input, told by the first byte: YAML, record, manifest, word"""
COUNTS = "refused.txt"
EVERY = 50
"""inputs between two notes of how many were refused: libFuzzer leaves without a word"""
LONGEST = 2500
TOKENS = (
    *("{", "}", "[", "]", ": ", ", ", "\n- ", "#", "|\n", '"', "'", "? ", "---\n", "%TAG ! x\n", '"\\U'),
    *("&a ", "*a", "<<: *a", "!!int ", "!!float ", "!!bool ", "!!timestamp ", "!!set ", "!!binary ", "!x "),
    *("null", "true", "no", ".inf", ".nan", "0x", "0o", "1:00", "1e400", "-1", "2020-13-45", "\x00"),
)
"""what YAML and JSON are made of; a fuzzer alone is long in finding it"""


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """So many inputs; libFuzzer stops at the first that raises anything but a sentence for the user."""
    corpus = _corpus(place)
    options = [f"-runs={tries}", f"-seed={seed + 1}", f"-max_len={LONGEST}", "-timeout=60"]
    command = [sys.executable, "-m", "campaign.parsers", *options, "-print_final_stats=1"]
    command += [f"-artifact_prefix={place}/", f"-dict={_dictionary(place)}", str(corpus)]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=place, env=env)
    counts = [int(one or other) for one, other in DONE.findall(done.stderr)]
    tally.tries += max(counts, default=0)
    if (place / COUNTS).exists():
        tally.refused += int((place / COUNTS).read_text())
    if done.returncode:
        kind = "hang" if "ALARM" in done.stderr else "traceback"
        tally.fail(kind, f"exit code {done.returncode}: {done.stderr[-1200:]}")


def _corpus(place: Path) -> Path:
    """A right document of each kind; short ones, which a fuzzer changes more often where it matters."""
    folder, run = place / "corpus", finished_run(place)
    folder.mkdir(exist_ok=True)
    record, manifest = (json.loads((run / name).read_text()) for name in ("steps/1.json", "scenario.json"))
    sections = {name: recipes()[0][name] for name in ("scenario", "method", "optim")}
    documents = (json.dumps(sections), json.dumps(record), json.dumps(manifest), "train.scale=[0.5, 2]")
    for number, text in enumerate(documents):
        content = bytes([number]) + text.encode()
        assert len(content) <= LONGEST, f"document {number} would be cut"
        (folder / str(number)).write_bytes(content)
    return folder


def _dictionary(place: Path) -> Path:
    """The tokens as libFuzzer reads them: a line of hexadecimal bytes each."""
    path = place / "tokens.txt"
    lines = ("".join(f"\\x{byte:02x}" for byte in token.encode()) for token in TOKENS)
    path.write_text("".join(f'"{line}"\n' for line in lines))
    return path


def _fuzz() -> None:
    import atheris

    with atheris.instrument_imports(include=["segue.core", "yaml"]):
        from segue.core.errors import UserError
        from segue.core.manifest import read_manifest
        from segue.core.overrides import parse_overrides
        from segue.core.records import read_record
        from segue.core.yaml_text import read_yaml
    path, counts = Path(tempfile.mkdtemp()) / "input", Path(COUNTS).resolve()
    seen = {"tries": 0, "refused": 0}

    def one(content: bytes) -> None:
        path.write_bytes(content[1:])
        readers = (read_yaml, read_record, read_manifest)
        number = content[0] % READERS if content else 0
        seen["tries"] += 1
        try:
            if number == READERS - 1:
                parse_overrides([content[1:].decode("utf-8", "surrogateescape")])
            else:
                readers[number](path)
        except UserError:
            seen["refused"] += 1
        if seen["tries"] % EVERY == 0:
            counts.write_text(str(seen["refused"]))

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    _fuzz()
