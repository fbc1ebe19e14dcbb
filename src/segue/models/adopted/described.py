"""What a description of a network may say. It may come from a stranger: it names no file, address or code.

Libraries hand settings on to one another, at any depth of a config: timm opens the file `checkpoint_path`,
and takes `hf-hub:` and `local-dir:` for names of networks; transformers fetches and runs the kernels that an
`attn_implementation` with a slash in it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from segue.core.errors import UserError

DROPPED = frozenset({"_name_or_path", "auto_map", "trust_remote_code"})
"""settings that say where code is, or that it may run; they say nothing of the network"""
IMPLEMENTATION = ("_implementation", "_implementation_internal")
"""endings of settings that choose code for a part of the network, or an address of such code"""
REFUSED = frozenset(
    {
        "cache_dir",
        "checkpoint_path",
        "pretrained_cfg",
        "pretrained_cfg_overlay",
        "quantization_config",
        "transformers_weights",
        "use_pretrained_backbone",
    }
)
"""settings that have weights read or fetched"""
FREE = frozenset({"id2label", "label2id"})
"""settings that hold names of classes"""
MARKS = frozenset("/\\:")
"""characters of paths and addresses, which no name of a network, an activation or a number type has"""
DEEPEST = 20
"""levels of settings in settings"""
LONGEST = 100
"""letters of a value that a message shows"""


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if they describe a network and nothing beside it."""
    return _plain("", settings, 0)


def _plain(key: str, value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise UserError(f"The description of the network has more than {DEEPEST} levels.")
    if key in REFUSED and value:
        said = shorten(repr(value), LONGEST)
        raise UserError(f"The description of the network has weights read or fetched ({key}: {said}).")
    if isinstance(value, Mapping):
        return {
            name: entry if name in FREE else _plain(str(name), entry, depth + 1)
            for name, entry in value.items()
            if name not in DROPPED and not str(name).endswith(IMPLEMENTATION)
        }
    if isinstance(value, list | tuple):
        return [_plain(key, entry, depth + 1) for entry in value]
    if isinstance(value, str) and MARKS & set(value):
        raise UserError(
            f"The description of the network names an address or a file ({key}: {shorten(value, LONGEST)}):"
            " only networks that installed libraries know by name are built."
        )
    return value
