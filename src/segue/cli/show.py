"""`segue show`: the resolved recipe of a run."""

from __future__ import annotations

from segue.cli.options import (
    Manifest,
    ModeOption,
    On,
    Seed,
    SplitOption,
    Target,
    Words,
    resolve_target,
    with_manifest,
)


def command(
    target: Target,
    words: Words = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    seed: Seed = None,
) -> None:
    """Print the resolved recipe: everything that a run would use."""
    from segue.core.config import to_yaml

    config, _ = resolve_target(target, on, split, mode, seed, with_manifest(words, manifest))
    print(to_yaml(config), end="")
