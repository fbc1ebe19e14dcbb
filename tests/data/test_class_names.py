"""classes.txt: what its lines mean, and what is refused."""

import random
from pathlib import Path

import pytest

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data.class_names import read_class_names


def read(tmp_path: Path, content: str | bytes) -> ClassTable:
    path = tmp_path / "classes.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_class_names(path, "mine")


@pytest.mark.parametrize(
    ("text", "names", "background", "void"),
    [
        ("background\ncat\ndog\n", {1: "cat", 2: "dog"}, 0, (255,)),
        ("cat\ndog", {0: "cat", 1: "dog"}, None, (255,)),
        ("sky\nroad\nvoid\n", {0: "sky", 1: "road"}, None, (2, 255)),
        ("0 background\n7: cat\n9, dog\n255 ignore", {7: "cat", 9: "dog"}, 0, (255,)),
        ("# mine\n\n _background_ \n traffic light \r\n", {1: "traffic light"}, 0, (255,)),
        ("\ufeffbackground\nçedilla\n犬\n", {1: "çedilla", 2: "犬"}, 0, (255,)),
        ("e\u0301toile\n", {0: "étoile"}, None, (255,)),
        ("# ids\n0 background\n\n# animals\n3 cow\n", {3: "cow"}, 0, (255,)),
        ("3 a\n255 b", {3: "a", 255: "b"}, None, ()),
        ("Unlabeled\ncat", {1: "cat"}, None, (0, 255)),
        ("2nd floor\nroof", {0: "2nd floor", 1: "roof"}, None, (255,)),
    ],
)
def test_lines(tmp_path, text, names, background, void) -> None:
    table = read(tmp_path, text)
    assert (table.names, table.background, table.void) == (names, background, void)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "names no class"),
        ("background\nvoid\n", "names no class"),
        ("cat\ndog\ncat", "'cat' twice"),
        ("background\n\ncat\n", "empty lines or comments between names"),
        ("background\ncat\n# small ones\nmouse\n", "empty lines or comments between names"),
        ("background\ncat\n_background_", "names background twice"),
        ("1 cat\ndog", "'dog' has no number"),
        ("1 cat\n1 dog", "gives the id 1 to 'cat' and to 'dog'"),
        ("256 cat", "256 is larger than 255"),
        ("\n".join(f"class {i}" for i in range(300)), "300 names"),
        ("a\n" * 60_000, "too large"),
        (b"\xff\xfe\x00c", "not a text file in UTF-8"),
        ("cat\0dog", "control character '\\\\x00'"),
        ("cat\x1b[31m", "control character '\\\\x1b'"),
    ],
)
def test_what_is_refused_names_the_file(tmp_path, content, message) -> None:
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path, content)
    assert str(tmp_path / "classes.txt") in str(error.value)


def test_missing_file_says_what_to_write(tmp_path) -> None:
    with pytest.raises(UserError, match=r"is missing\. Write the names of the classes into it"):
        read_class_names(tmp_path / "classes.txt", "mine")
    with pytest.raises(UserError, match="cannot be read"):
        read_class_names(tmp_path, "mine")


def test_random_bytes_are_read_or_refused(tmp_path) -> None:
    generator = random.Random(0)
    outcomes = set()
    for _ in range(300):
        content = bytes(generator.choices(b"09 \n:ab\xc3\xa9\x00", k=generator.randrange(30)))
        try:
            outcomes.add(type(read(tmp_path, content)))
        except UserError as error:
            outcomes.add(type(error))
    assert outcomes == {ClassTable, UserError}
