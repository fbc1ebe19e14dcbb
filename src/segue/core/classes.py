"""What a data set says about its classes: ids, names, which id is background, which ids are void."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from segue.core.errors import UserError, suggest

IGNORE = 255
"""The label that no loss and no metric counts."""

Colour = tuple[int, int, int]
"""red, green and blue, from 0 to 255"""


@dataclass(frozen=True)
class ClassTable:
    """The classes of a data set. Background and void are not classes: they are listed apart.

    Examples:
        >>> import segue
        >>> classes = segue.ClassTable("pets", {1: "cat", 2: "dog"}, background=0, void=(255,))
        >>> classes.ids, classes.resolve("dog")
        ((1, 2), 2)
    """

    dataset: str
    names: dict[int, str]
    """class id -> name, without background and void"""
    background: int | None = 0
    """the id that means "none of the classes", or None when every labelled pixel has a class"""
    void: tuple[int, ...] = (IGNORE,)
    """ids that mean "unlabelled" or "do not score\""""
    colours: dict[int, Colour] | None = field(default=None, repr=False, compare=False)
    """class id -> colour in pictures, for a data set that ships its own palette"""
    _ids: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._ids.update({name: class_id for class_id, name in self.names.items()})
        reserved = {*self.void, *([] if self.background is None else [self.background])}
        assert len(self._ids) == len(self.names), "class names are unique"
        assert not reserved & set(self.names), "background and void are not classes"
        if not self.names:
            raise UserError(f"{self.dataset} has no class.")
        if len(self.names) > 254 or not all(0 <= class_id <= 255 for class_id in self.names):
            raise UserError(
                f"{self.dataset}: masks are 8 bit, so at most 254 classes with ids from 0 to 255."
            )

    def beside(self, names: Iterable[str]) -> ClassTable:
        """The table of a scenario over just these names, which a model knows or learns.

        Names that the data lack get ids that no mask has; classes that are not named count as void.
        """
        wanted = tuple(dict.fromkeys(names))
        free = (class_id for class_id in range(IGNORE, -1, -1) if class_id not in self.known)
        by_name = {name: self._ids[name] if name in self._ids else next(free, None) for name in wanted}
        if None in by_name.values():
            raise UserError(f"{self.dataset}: masks are 8 bit, so at most 254 classes in all.")
        unnamed = tuple(class_id for name, class_id in self._ids.items() if name not in by_name)
        ids = {class_id: name for name, class_id in by_name.items() if class_id is not None}
        return replace(self, names=ids, void=(*self.void, *unnamed), colours=None)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.names)

    @property
    def known(self) -> frozenset[int]:
        """Every id that may stand in a mask."""
        return frozenset({*self.names, *self.void, *([] if self.background is None else [self.background])})

    def resolve(self, name_or_id: str | int) -> int:
        """The id of a class given by name or by id."""
        text = unicodedata.normalize("NFC", str(name_or_id).strip())
        if text in self._ids:
            return self._ids[text]
        if text.isdecimal() and int(text) in self.names:
            return int(text)
        raise UserError(
            f"'{text}' is no class of {self.dataset} (ids {min(self.names)} to {max(self.names)})."
            + suggest(text, self._ids)
            + (" Names with , or / are said by their ids." if self._awkward else "")
        )

    @property
    def _awkward(self) -> bool:
        return any("," in name or "/" in name for name in self._ids)


def voc_palette(entries: int = 256) -> list[int]:
    """The PASCAL VOC colour map, r, g, b, r, g, b, ...: the bits of an id spread over the channels."""
    flat: list[int] = []
    for entry in range(entries):
        red = green = blue = 0
        rest = entry
        for bit in range(7, -1, -1):
            red |= (rest & 1) << bit
            green |= (rest >> 1 & 1) << bit
            blue |= (rest >> 2 & 1) << bit
            rest >>= 3
        flat += [red, green, blue]
    return flat
