"""Weights of Hugging Face folders, read by the library itself, which knows their names of earlier years."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from segue.core.errors import UserError
from segue.models.adopted.sources import hf_config
from segue.models.adopted.weights import refuse

ADAPTER = "adapter_config.json"
"""file by which transformers takes the model that it names for the folder's own"""


def loaded(
    folder: Path, source: dict[str, Any], anew: Sequence[str] = (), task: str = "SemanticSegmentation"
) -> Any:
    """The network of a folder of `save_pretrained`, strictly; parts under the names `anew` may differ."""
    import transformers

    if (folder / ADAPTER).exists():
        raise UserError(
            f"{folder} holds an adapter ({ADAPTER}), which names another model: merge the two first."
        )
    try:
        with without_bars():
            module, differences = getattr(transformers, f"AutoModelFor{task}").from_pretrained(
                str(folder),
                config=hf_config(source),
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise UserError(f"{folder} cannot be read by transformers: {shorten(str(error), 300)}") from error
    mismatched = {
        str(each if isinstance(each, str) else each[0]): str(each) for each in differences["mismatched_keys"]
    }
    lines = {name: f"'{name}' is missing" for name in differences["missing_keys"]}
    lines |= {name: f"'{name}' is not part of the network" for name in differences["unexpected_keys"]}
    lines |= {name: f"{text} differs in shape" for name, text in mismatched.items()}
    counted = [line for name, line in lines.items() if not any(name.startswith(f"{part}.") for part in anew)]
    refuse(counted, folder, module)
    return module


@contextmanager
def without_bars() -> Iterator[None]:
    """No progress bar of the library, and no report of what differs: that is said here, or is meant."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
