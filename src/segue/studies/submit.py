"""A study as a Slurm job: Ray is started on the nodes of the allocation, and the study runs on it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from segue.core.errors import UserError
from segue.core.records import atomic_file

JOB = """#!/bin/bash
#SBATCH --job-name=segue-{verb}
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --requeue
# Set the lines above to what there is and what the study needs; without GPUs leave out --gpus-per-node.
# Submitted again, the job goes on: finished runs are kept, others go on from their checkpoints.
set -eu
cd {here}
export PATH={programs}:"$PATH" RAY_USAGE_STATS_ENABLED=0

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
port=$((20000 + SLURM_JOB_ID % 10000))
address="${{nodes[0]}}:$port"
gpus=${{SLURM_GPUS_ON_NODE:-0}}
room=(--num-cpus "${{SLURM_CPUS_PER_TASK:-1}}" --num-gpus "$gpus" --disable-usage-stats --block)

srun --nodes=1 --ntasks=1 --nodelist="${{nodes[0]}}" \\
  ray start --head --port="$port" --temp-dir="/tmp/ray-$SLURM_JOB_ID" "${{room[@]}}" > /dev/null &
# the first node answers before the others ask
for _ in $(seq 60); do
  ray status --address "$address" > /dev/null 2>&1 && break
  sleep 2
done
for node in "${{nodes[@]:1}}"; do
  srun --nodes=1 --ntasks=1 --nodelist="$node" ray start --address="$address" "${{room[@]}}" > /dev/null &
done
for _ in $(seq 60); do
  [ "$(ray status --address "$address" 2> /dev/null | grep -c '^ 1 node_')" -ge "${{#nodes[@]}}" ] && break
  sleep 2
done

{command} --cluster "$address"
"""


def write_job(path: Path, words: Sequence[str]) -> None:
    """Write a Slurm job that carries out the command with these words; a file that is there stays."""
    if path.exists():
        raise UserError(f"{path} exists, perhaps with changes of yours: name another file with --submit.")
    text = job_text(words, Path.cwd(), Path(sys.executable).parent)
    with atomic_file(path) as file:
        file.write(os.fsencode(text))  # names of folders as they are, which may be no text


def job_text(words: Sequence[str], here: Path, programs: Path) -> str:
    """The job; `programs`: the folder of `segue` and `ray`."""
    command = shlex.join(["segue", *_without_places(words)])
    return JOB.format(
        verb=words[0], here=shlex.quote(str(here)), programs=shlex.quote(str(programs)), command=command
    )


def _without_places(words: Sequence[str]) -> list[str]:
    """The words without --submit and --cluster and what follows them."""
    kept, skip = list[str](), False
    for word in words:
        if skip or word.split("=")[0] in ("--submit", "--cluster"):
            skip = not skip and "=" not in word
        else:
            kept.append(word)
    return kept
