"""The seal of an ONNX file: a digest of its bytes among its metadata, so that damage is noticed. No torch.

A flipped bit in a weight leaves a file that runs, and answers wrongly. The digest is that of the file with an
open seal, one of zeros, in its place; it is read from the bytes, for which no ONNX library is needed. Files
of older versions and of other programs have none.
"""

from __future__ import annotations

import hashlib
import re

from segue.core.errors import UserError

KEY = "seal"
DIGITS = 64
OPEN = "segue-seal-" + DIGITS * "0"
"""value of the metadata before the file is whole"""
SEAL = re.compile(rb"segue-seal-(.{64})", re.DOTALL)
SPOILT = re.compile(rb"seal\x12K.{11}[0-9a-f]{64}", re.DOTALL)
"""entry of the metadata as long as a seal: its key, the length, a mark of any letters and the digits"""


def sealed(content: bytes) -> bytes:
    """A file with its seal closed, whatever stood there: what is made of a sealed file has the seal of it."""
    found = SEAL.search(content)
    if found is None:
        return content
    return content[: found.start(1)] + _digest(content, found.span(1)) + content[found.end(1) :]


def check_seal(content: bytes, name: str) -> None:
    """Refuse a file whose bytes are not those that were sealed; `name` is for the message."""
    found = SEAL.search(content)
    if found is not None and found[0] == OPEN.encode():
        return
    spoilt = SPOILT.search(content) if found is None else _digest(content, found.span(1)) != found[1]
    if spoilt:
        raise UserError(
            f"{name} is damaged or was edited: its content does not match its digest. Export it again. If it"
            f" was changed on purpose, take the entry '{KEY}' out of its metadata."
        )


def _digest(content: bytes, place: tuple[int, int]) -> bytes:
    digest, whole = hashlib.blake2b(digest_size=DIGITS // 2), memoryview(content)
    for part in (whole[: place[0]], b"0" * DIGITS, whole[place[1] :]):
        digest.update(part)
    return digest.hexdigest().encode()
