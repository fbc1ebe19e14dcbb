"""Keys of images: safe as file names and as words of a list, and distinct."""

import unicodedata

import pytest

from segue.data.annotations.keys import assign_keys, clean


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a/b/photo.jpg", "photo"),
        ("IMG 0001.JPEG", "IMG_0001"),
        ("scan.v2.png", "scan.v2"),
        ("no suffix", "no_suffix"),
        ("x.jpg.png", "x_jpg"),
        (".hidden.png", "_hidden"),
        ("-rf.png", "_rf"),
        (".png", "_png"),
        ("a\tb\nc\u2028d\u00a0e.png", "a_b_c_d_e"),
        ("a\\b:c*d.png", "a_b_c_d"),
        ("cafe\u0301 日本.jpg", "caf\u00e9_日本"),
        ("bad\udcff.jpg", "bad_"),
        ("\ufeffx.jpg", "_x"),
    ],
)
def test_one_key(name: str, key: str) -> None:
    assert assign_keys([name]) == [key]


def test_equal_names_take_in_their_folders() -> None:
    assert assign_keys(["a/x.jpg", "b/x.jpg", "b/y.jpg"]) == ["a_x", "b_x", "y"]
    assert assign_keys(["p/a/x.jpg", "q/a/x.jpg", "X.jpg"]) == ["p_a_x", "q_a_x", "X"]


@pytest.mark.parametrize(
    "names",
    [
        ["x.jpg", "x.png"],
        ["x.jpg", "X.jpg", "x.JPG"],
        ["a b.jpg", "a_b.jpg", "a/b.jpg", "a:b.jpg"],
        ["a/x.jpg", "a_x.jpg", "b/x.jpg"],
        ["straße.jpg", "STRASSE.jpg"],
        ["é.jpg", "e\u0301.jpg"],
        ["x" * 400 + "1.jpg", "x" * 400 + "2.jpg"],
        ["é" * 400 + "1.jpg", "é" * 400 + "2.jpg"],
        ["same.jpg", "same.jpg", "same.jpg"],
    ],
)
def test_keys_are_distinct_whatever_happens(names: list[str]) -> None:
    keys = assign_keys(names)
    assert len({unicodedata.normalize("NFC", key.casefold()) for key in keys}) == len(names)
    for key in keys:
        assert len(key.encode()) <= 150 and clean(key) == key and key.split() == [key]


def test_keys_do_not_depend_on_other_images() -> None:
    assert assign_keys(["a/x.jpg", "b/y.jpg"])[0] == assign_keys(["a/x.jpg", "c/z.jpg", "b/y.jpg"])[0]
    long = "x" * 300 + ".jpg"
    assert assign_keys([long]) == [assign_keys(["b.jpg", long])[1]]
