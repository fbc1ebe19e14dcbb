"""A trained model as one safetensors file: weights, and in its header all that is needed to build it again.

What only training needs (the old branch and the fusion of CAF, the teacher) is not in it. A file may come
from a stranger: loading one runs no code, fetches nothing and opens no other file.
"""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from segue.core.classes import Colour
from segue.core.config import validate
from segue.core.errors import UserError, reason
from segue.core.ordinary import check_ordinary
from segue.core.records import atomic_file
from segue.deploy.prepare import Preparation
from segue.engine.checkpoint import tensor_digest
from segue.models.build import network_from_spec
from segue.models.network import Network
from segue.models.weights_file import first_nan

FORMAT = "segue-model-2"
WRONG_HEADER = (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError)
"""errors of a header that does not fit the weights, or is none"""
LONGEST_NAME = 1000
Byte = Annotated[int, Field(ge=0, le=255)]


@dataclass(frozen=True)
class Header:
    """What stands beside the weights."""

    network: dict[str, Any]
    """`Network.spec()`"""
    classes: tuple[str, ...]
    """names of the channels, background first"""
    images: Preparation
    """how images come to the network"""
    colours: tuple[tuple[Byte, Byte, Byte], ...] = ()
    """red, green and blue of each class; none: colours that can be told apart"""
    closed: bool = False
    """whether no pixel is called background"""


def save_model(
    network: Network,
    classes: Sequence[str],
    path: str | Path,
    images: Preparation | None = None,
    colours: Sequence[Colour] = (),
    closed: bool = False,
) -> None:
    """Write a model; `classes` are the names of its channels, background first."""
    header = Header(network.spec(), tuple(classes), images or Preparation(), tuple(colours), closed)
    tensors = {name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}
    about = json.dumps(dataclasses.asdict(header))
    metadata = {"format": FORMAT, "about": about, "digest": tensor_digest(tensors, about)}
    with atomic_file(path) as file:
        file.write(save(tensors, metadata))


def load_model(path: str | Path, module: nn.Module | None = None) -> tuple[Network, Header]:
    """The network, ready to predict, and what stands beside its weights."""
    metadata, tensors = _read(path)
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a model of this version ({FORMAT}); write one with 'segue export'.")
    # files of older versions have no digest
    about, digest = metadata.get("about", ""), metadata.get("digest")
    if digest is not None and digest != tensor_digest(tensors, about):
        raise UserError(f"{path} is damaged or was edited: its content does not match its digest.")
    try:
        header = validate(Header, json.loads(about), "")
        return described_network(header, tensors, module), header
    except WRONG_HEADER as error:
        raise wrong_header(path, error) from error


def described_network(
    header: Header, tensors: Mapping[str, Tensor], module: nn.Module | None = None
) -> Network:
    """The network that a header describes, with its weights; one of `WRONG_HEADER` if they do not fit.

    `module` is code of the user's own, for a network that was adopted from it.
    """
    if header.colours and len(header.colours) != len(header.classes):
        raise ValueError(f"{len(header.colours)} colours for {len(header.classes)} channels")
    check_names(header.classes)
    network = network_from_spec(header.network, len(header.classes), module)
    network.load_state_dict(tensors, strict=True)
    if (broken := first_nan(tensors)) is not None:
        raise ValueError(f"{broken} holds NaN")
    return network.eval()


def check_names(names: Sequence[str]) -> None:
    """Names that tables can hold and terminals can show, one for each channel."""
    for place, name in enumerate(names):
        if any(unicodedata.category(mark) in ("Cc", "Cs") for mark in name):
            raise ValueError(f"the name of channel {place} holds a control character: {name!a}")
        if not name.strip() or len(name) > LONGEST_NAME:
            raise ValueError(f"the name of channel {place} has {len(name)} letters")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the class '{twice[0]}' stands twice")


def wrong_header(path: str | Path, error: Exception) -> UserError:
    return UserError(f"{path} does not describe its own weights: {shorten(str(error), 300)}")


def _read(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        check_ordinary(path)
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} is not a readable model file: {reason(error)}.") from error
