"""Bytes of strangers, chosen by the lines of a parser that they reach: atheris in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from campaign.tally import Tally

DONE = re.compile(r"Done (\d+) runs|stat::number_of_executed_units:\s+(\d+)")


def attack(tally: Tally, tries: int, seed: int, place: Path) -> None:
    """So many inputs; libFuzzer stops at the first that raises anything but a sentence for the user."""
    options = [f"-runs={tries}", f"-seed={seed + 1}", "-max_len=300", "-timeout=20", "-print_final_stats=1"]
    command = [sys.executable, "-m", "campaign.parsers", *options, f"-artifact_prefix={place}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    counts = [int(one or other) for one, other in DONE.findall(done.stderr)]
    tally.tries += max(counts, default=0)
    if done.returncode:
        kind = "hang" if "ALARM" in done.stderr else "traceback"
        tally.fail(kind, f"exit code {done.returncode}: {done.stderr[-1200:]}")


def _fuzz() -> None:
    import atheris

    with atheris.instrument_imports(include=["segue.core", "yaml"]):
        from segue.core.errors import UserError
        from segue.core.manifest import read_manifest
        from segue.core.overrides import parse_overrides
        from segue.core.records import read_record
        from segue.core.yaml_text import read_yaml
    path = Path(tempfile.mkdtemp()) / "input"

    def one(content: bytes) -> None:
        path.write_bytes(content[1:])
        readers = (read_yaml, read_record, read_manifest)
        number = content[0] % 4 if content else 0
        try:
            if number == 3:
                parse_overrides([content[1:].decode("utf-8", "surrogateescape")])
            else:
                readers[number](path)
        except UserError:
            pass

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    _fuzz()
