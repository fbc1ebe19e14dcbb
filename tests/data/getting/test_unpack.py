"""Unpacking archives that nobody vouches for: all of it or nothing, and nothing outside the folder."""

import gzip
import io
import os
import random
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from segue.core.errors import UserError
from segue.data.getting import unpack as module
from segue.data.getting.unpack import unpack

KINDS = ("tar", "tar.gz", "zip")
CONTENT = {
    "set/images/1.jpg": b"one" * 50,
    "set/images/2.jpg": bytes(range(256)) * 3,
    "set/masks/1.png": b"",
    "set/read me.txt": "süß".encode(),
}
PLENTY = 1 << 20
FLIPS = (1, 2, 16, 128, 255)
thoroughly = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"]
)


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Writing the disk's caches out, a hundred times, is not what is tested."""
    calls: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: calls.append(1))
    return calls


def make(path: Path, content: dict[str, bytes]) -> Path:
    """An ordinary archive; its kind follows from its name, a name that ends in / is a folder."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz" if path.name.endswith(".gz") else "w") as archive:
        for name, data in content.items():
            add(archive, name, data)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes = b"", **fields) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(data))


def zip_of_mode(path: Path, mode: int) -> Path:
    info = zipfile.ZipInfo("a")
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fine.txt", b"fine")
        archive.writestr(info, b"x")
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """All files below, and whatever is neither file nor folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            name = path.relative_to(folder).as_posix()
            found[name] = path.read_bytes() if stat.S_ISREG(mode) else b"NO FILE"
    return found


def refusal(archive: Path, most: int = PLENTY, **options) -> str:
    """The refusal of an archive; nothing else may have changed around it."""
    folder = archive.parent / "place" / "out"
    before = tree(archive.parent)
    with pytest.raises(UserError) as caught:
        unpack(archive, folder, most, **options)
    assert tree(archive.parent) == before
    assert not folder.parent.exists() or not any(folder.parent.iterdir())
    assert str(archive) in str(caught.value)
    return str(caught.value)


# What is right


@pytest.mark.parametrize("kind", KINDS)
def test_files_come_out_as_they_went_in(tmp_path, kind, synced):
    seen = []
    archive = make(tmp_path / f"set.{kind}", {"set/": b"", **CONTENT, "set/empty/": b""})
    unpack(archive, tmp_path / "new" / "out", PLENTY, lambda done, total: seen.append((done, total)))
    assert tree(tmp_path / "new" / "out") == CONTENT
    assert (tmp_path / "new/out/set/empty").is_dir()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    assert seen == sorted(seen) and seen[-1] == (archive.stat().st_size,) * 2
    assert synced == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_only_one_folder_is_taken(tmp_path, kind):
    others = {"__MACOSX/set/._1": b"mac", "../evil": b"skipped", "setting/x": b"x", "license.txt": b"l"}
    archive = make(tmp_path / f"set.{kind}", {**others, **{f"./{name}": CONTENT[name] for name in CONTENT}})
    unpack(archive, tmp_path / "out", PLENTY, top="set", expected=("images", "masks"))
    assert tree(tmp_path / "out") == {name.removeprefix("set/"): data for name, data in CONTENT.items()}


def test_resource_forks_are_never_taken(tmp_path):
    unpack(make(tmp_path / "a.zip", {"a": b"a", "__MACOSX/._a": b"fork"}), tmp_path / "out", PLENTY)
    assert tree(tmp_path / "out") == {"a": b"a"}


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_modes_are_plain(tmp_path, kind):
    if kind == "zip":
        archive = zip_of_mode(tmp_path / "a.zip", 0o106777)
    else:
        with tarfile.open(tmp_path / "a.tar", "w") as packed:
            add(packed, "d/", mode=0o7777)
            add(packed, "d/a", b"x", mode=0o6777)
        archive = tmp_path / "a.tar"
    old = os.umask(0)
    try:
        unpack(archive, tmp_path / "out", PLENTY)
    finally:
        os.umask(old)
    for path in [tmp_path / "out", *(tmp_path / "out").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_long_names_of_old_and_new_tars_are_read(tmp_path):
    name = "/".join(["n" * 60] * 5)
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as packed:
            add(packed, name, b"x")
        unpack(tmp_path / "a.tar", tmp_path / f"out{number}", PLENTY)
        assert tree(tmp_path / f"out{number}") == {name: b"x"}


def test_exactly_the_limit_is_allowed(tmp_path):
    size = sum(map(len, CONTENT.values()))
    for kind in KINDS:
        archive = make(tmp_path / f"set.{kind}", CONTENT)
        unpack(archive, tmp_path / kind, size)
        assert f"more than {size - 1:,} bytes" in refusal(archive, size - 1)


# Names


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/x", "leads out"),
        ("//server/share", "leads out"),
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("a/..", "leads out"),
        ("C:/x", "other systems"),
        ("C:x", "other systems"),
        ("a\\..\\x", "other systems"),
        ("\\\\server\\x", "other systems"),
        ("file.txt:stream", "other systems"),
        ("a./x", "other systems"),
        ("a /x", "other systems"),
        ("a\nb", "invisible"),
        ("a\x1b[31m", "invisible"),
        ("a\x7f", "invisible"),
        ("a\u202egpj.exe", "invisible"),
        ("n" * 256, "too long"),
        ("ü" * 128, "too long"),
        ("/".join(["n" * 200] * 6), "too long"),
    ],
)
def test_names_that_are_refused(tmp_path, kind, name, reason):
    archive = make(tmp_path / f"set.{kind}", {"fine": b"fine", name: b"x"})
    message = refusal(archive)
    assert reason in message and repr(name)[:50] in message and "\x1b" not in message


def test_the_wanted_folder_does_not_excuse_a_name(tmp_path):
    assert "leads out" in refusal(make(tmp_path / "a.zip", {"set/../../x": b"x"}), top="set")
    assert "leads out" in refusal(make(tmp_path / "a.tar", {"/set/x": b"x"}), top="set")


def test_nul_in_a_name_is_refused(tmp_path):
    archive = make(tmp_path / "a.zip", {"good.jpgXevil": b"x"})
    archive.write_bytes(archive.read_bytes().replace(b"good.jpgX", b"good.jpg\0"))
    assert "invisible" in refusal(archive)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as packed:
        add(packed, "a", b"x", pax_headers={"path": "good.jpg\0evil"})
    assert "invisible" in refusal(tmp_path / "a.tar")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as packed:
        add(packed, "s\xfc\xdf", b"x")
    assert "invisible" in refusal(tmp_path / "a.tar")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("a", "a"), "twice"),
        (("a", "./a"), "twice"),
        (("a", "A"), "case or accents"),
        (("ü", "u\u0308"), "case or accents"),
        (("straße", "STRASSE"), "case or accents"),
        (("d/a", "D/b"), "case or accents"),
        (("a", "a/b"), "both a file and a folder"),
        (("a/b", "a"), "both a file and a folder"),
        (("a/", "a"), "both a file and a folder"),
        (("a", "a/"), "both a file and a folder"),
    ],
)
def test_no_member_overwrites_another(tmp_path, kind, names, reason):
    path = tmp_path / f"set.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            for name in names:
                packed.writestr(name, b"")
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as packed:
            for name in names:
                add(packed, name)
    assert reason in refusal(path)


# What is neither file nor folder


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (tarfile.SYMTYPE, {"linkname": "/etc/passwd"}),
        (tarfile.SYMTYPE, {"linkname": "fine"}),
        (tarfile.LNKTYPE, {"linkname": "fine"}),
        (tarfile.FIFOTYPE, {}),
        (tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}),
        (tarfile.BLKTYPE, {"devmajor": 8, "devminor": 0}),
        (tarfile.CONTTYPE, {}),
        (b"V", {}),
    ],
)
def test_special_members_of_a_tar(tmp_path, kind, fields):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        add(packed, "fine", b"fine")
        add(packed, "special", type=kind, **fields)
    if kind == tarfile.CONTTYPE:  # an old word for a plain file
        unpack(tmp_path / "a.tar", tmp_path / "out", PLENTY)
        assert tree(tmp_path / "out") == {"fine": b"fine", "special": b""}
    else:
        message = refusal(tmp_path / "a.tar")
        assert "'special' is neither a plain file nor a folder" in message


def test_sparse_files_are_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as packed:
        sparse = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.map": "0,1",
            "GNU.sparse.size": "9",
        }
        add(packed, "holes", b"x", pax_headers=sparse)
    assert "neither a plain file" in refusal(tmp_path / "a.tar")


def test_a_link_cannot_lead_a_later_file_out(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        add(packed, "door", type=tarfile.SYMTYPE, linkname=str(tmp_path))
        add(packed, "door/x", b"x")
    refusal(tmp_path / "a.tar")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, stat.S_IFDIR]
)
def test_special_members_of_a_zip(tmp_path, kind):
    archive = zip_of_mode(tmp_path / "a.zip", kind | 0o777)
    assert "'a' is neither a plain file nor a folder" in refusal(archive)


def test_folder_with_content_is_refused(tmp_path):
    assert "folder with content" in refusal(make(tmp_path / "a.zip", {"fine": b"", "d/": b"x"}))


@pytest.mark.parametrize("bit", [0x1, 0x40])
def test_encrypted_members_are_refused(tmp_path, bit):
    archive = make(tmp_path / "a.zip", {"a": b"x"})
    data = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= bit
    archive.write_bytes(data)
    assert "'a' is encrypted" in refusal(archive)


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_packing_is_refused(tmp_path, way):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", way) as packed:
        packed.writestr("a", b"x")
    assert "unusual way" in refusal(tmp_path / "a.zip")


# Too much


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_bombs_are_stopped_by_what_they_write(tmp_path, kind):
    archive = make(tmp_path / f"bomb.{kind}", {"a": bytes(5 << 20)})
    assert archive.stat().st_size < 10_000
    assert "100 times its size" in refusal(archive, 1 << 30)
    assert "more than 1,000 bytes" in refusal(archive, 1000)


def test_skipped_members_of_a_bomb_count_too(tmp_path):
    archive = make(tmp_path / "bomb.tar.gz", {"other": bytes(5 << 20), "set/a": b"a"})
    assert "100 times its size" in refusal(archive, 1 << 30, top="set")


def test_header_that_understates_a_size_does_not_help(tmp_path):
    archive = make(tmp_path / "a.zip", {"a": bytes(3000)})
    data = archive.read_bytes()
    for said in (10, 4000):
        archive.write_bytes(data.replace(struct.pack("<I", 3000), struct.pack("<I", said)))
        assert "CRC" in (message := refusal(archive, 5000)) or "3,000 bytes instead of 4,000" in message


def test_small_members_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 1000)
    monkeypatch.setattr(module, "RATIO", 2)
    archive = make(tmp_path / "a.zip", {f"{number:03}": bytes(2000) for number in range(50)})
    assert "2 times its size" in refusal(archive)


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_MEMBERS", 4)
    for kind in KINDS:
        unpack(make(tmp_path / f"set.{kind}", CONTENT), tmp_path / kind, PLENTY)
        assert "more than 4 members" in refusal(make(tmp_path / f"set.{kind}", {**CONTENT, "e": b""}))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_do_not_fill_the_memory(tmp_path, kind):
    with gzip.open(tmp_path / "a.tar.gz", "wb") as packed:
        info = tarfile.TarInfo("header")
        info.type, info.size = kind, 1 << 40
        packed.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    assert "absurd size" in refusal(tmp_path / "a.tar.gz")


def test_headers_of_headers_of_headers(tmp_path):
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 0
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.USTAR_FORMAT) * 3000)
    assert "damaged" in refusal(tmp_path / "a.tar")


def test_negative_sizes(tmp_path):
    info = tarfile.TarInfo("a")
    info.size = -1024
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    # newer versions of tarfile see it themselves: "invalid offset"
    assert re.search("neither a plain file|invalid offset", refusal(tmp_path / "a.tar"))
    assert re.search("lead backwards|invalid offset", refusal(tmp_path / "a.tar", top="set"))


# Damaged


def test_what_is_no_archive(tmp_path):
    for data in (b"", b"<html>" * 200, b"PK\x03\x04" * 50, b"\x1f\x8b"):
        (tmp_path / "a.zip").write_bytes(data)
        assert "damaged, incomplete, or no zip" in refusal(tmp_path / "a.zip")
    assert "it is empty" in refusal(make(tmp_path / "e.tar", {}))
    assert "it is empty" in refusal(make(tmp_path / "e.zip", {}))
    (tmp_path / "missing.zip").mkdir()
    assert "not an ordinary file" in refusal(tmp_path / "missing.zip")
    assert "No such file" in refusal(tmp_path / "none.zip")


def test_another_archive_than_expected(tmp_path):
    archive = make(tmp_path / "a.zip", CONTENT)
    assert "holds nothing in 'other'" in refusal(archive, top="other")
    assert "'set/read me.txt' is a file, not a folder" in refusal(archive, top="set/read me.txt")
    assert "the folder 'labels' is missing" in refusal(archive, top="set", expected=("images", "labels"))


def test_members_that_hide_in_a_comment_are_missed(tmp_path):
    """zipfile reads the list of members until it ends, and never asks how many there should be."""
    archive = make(tmp_path / "a.zip", CONTENT)
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\x01\x02") + 33] = 255  # the first member gets a comment as long as all the rest
    archive.write_bytes(data)
    with zipfile.ZipFile(archive) as packed:
        assert len(packed.namelist()) == 1
    assert "should have 4 members, but 1" in refusal(archive)


def test_zip_that_does_not_say_how_many_it_has(tmp_path):
    """65535 stands for "more than fit here"."""
    archive = make(tmp_path / "a.zip", CONTENT)
    data = bytearray(archive.read_bytes())
    position = data.rindex(b"PK\x05\x06") + 10
    data[position : position + 2] = b"\xff\xff"
    archive.write_bytes(data)
    unpack(archive, tmp_path / "out", PLENTY)
    assert tree(tmp_path / "out") == CONTENT


def test_wrong_crc(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_STORED) as packed:
        packed.writestr("a", b"unmistakable")
    data = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(data.replace(b"unmistakable", b"unmistakabel"))
    assert "CRC" in refusal(tmp_path / "a.zip")
    packed = bytearray(make(tmp_path / "a.tar.gz", CONTENT).read_bytes())
    packed[-8] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(packed)
    message = refusal(tmp_path / "a.tar.gz")
    assert "damaged" in message and "CRC" in message


def test_tar_without_its_end_needs_a_digest(tmp_path):
    """Cut between two members, a plain tar looks whole, but for the empty block at its end."""
    archive = make(tmp_path / "a.tar", {"a": b"a" * 512, "b": b"b" * 512})
    whole = archive.read_bytes()
    archive.write_bytes(whole[:2048])
    assert "its end is missing" in refusal(archive)
    unpack(archive, tmp_path / "out", PLENTY, complete=True)
    assert tree(tmp_path / "out") == {"a": b"a" * 512, "b": b"b" * 512}
    for cut in (2047, 1536, 1025, 1024 + 511):
        archive.write_bytes(whole[:cut])
        refusal(archive, complete=cut != 1536)


def spread(items: Sequence[int], most: int) -> list[int]:
    """Some of them, evenly, the first and the last among them."""
    return sorted({items[i * (len(items) - 1) // (most - 1)] for i in range(most)})


@thoroughly
@pytest.mark.parametrize("kind", KINDS)
def test_cut_anywhere(tmp_path, kind, thorough):
    archive = make(tmp_path / f"set.{kind}", CONTENT)
    whole = archive.read_bytes()
    end = len(whole.rstrip(b"\0")) if kind == "tar" else len(whole)  # a tar is padded with nothing
    cuts = set(range(end) if thorough else spread(range(end), 30))
    if kind == "tar":
        cuts |= {cut + by for cut in range(512, end, 512) for by in (-1, 0, 1)}  # where blocks begin
    for cut in sorted(cuts):
        archive.write_bytes(whole[:cut])
        refusal(archive)


def changes(whole: bytes, thorough: bool) -> Iterator[dict[int, int]]:
    """Places and how they are changed: one at a time, each kind of change in turn, and three at once."""
    full = [place for place, value in enumerate(whole) if value]
    padding = [place for place, value in enumerate(whole) if not value]
    if thorough:
        yield from ({place: flip} for place in full for flip in FLIPS)
        yield from ({place: FLIPS[place % 5]} for place in padding)
    else:
        places = {*range(16), *spread(full, 60), *spread(padding, 20), *range(len(whole) - 8, len(whole))}
        yield from ({place: FLIPS[number % 5]} for number, place in enumerate(sorted(places)))
        starts = [whole.find(mark) for mark in (b"PK\1\2", b"PK\5\6")]  # a zip's list of members, its end
        fields = [
            place for start in starts if start > 0 for place in range(start, min(start + 46, len(whole)))
        ]
        yield from ({place: flip} for place in fields for flip in (255, FLIPS[place % 4]))
    dice = random.Random(len(whole))
    for _ in range(400 if thorough else 25):
        yield {dice.randrange(len(whole)): dice.choice(FLIPS) for _ in range(3)}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@thoroughly
@pytest.mark.parametrize("kind", KINDS)
def test_any_byte_changed(tmp_path, kind, thorough):
    """Refused, or right; but a plain tar has no checksum over what is in its files."""
    archive, inside = make(tmp_path / f"set.{kind}", CONTENT), tmp_path / "place"
    whole, outcomes = archive.read_bytes(), {"refused": 0, "right": 0}
    for changed in changes(whole, thorough):
        data = bytearray(whole)
        for place, flip in changed.items():
            data[place] ^= flip
        archive.write_bytes(data)
        try:
            unpack(archive, inside / "out", PLENTY)
        except UserError:
            outcomes["refused"] += 1
        else:
            found = tree(inside / "out")
            sizes = {name: len(content) for name, content in found.items()}
            assert sizes == {name: len(content) for name, content in CONTENT.items()}, changed
            assert kind == "tar" or found == CONTENT, changed
            shutil.rmtree(inside / "out")
            outcomes["right"] += 1
        assert {path.name for path in tmp_path.iterdir()} <= {archive.name, "place"}
        assert not inside.exists() or not any(inside.iterdir()), changed
    assert min(outcomes.values()) > 3


# The place


def test_nothing_is_unpacked_over_what_is_there(tmp_path):
    archive = make(tmp_path / "a.zip", CONTENT)
    target = tmp_path / "elsewhere"
    target.mkdir()
    for name, make_it in {
        "folder": lambda path: path.mkdir(),
        "file": lambda path: path.write_bytes(b"mine"),
        "link": lambda path: path.symlink_to(target),
        "dangling": lambda path: path.symlink_to(tmp_path / "nowhere"),
    }.items():
        make_it(tmp_path / name)
        with pytest.raises(UserError, match=f"{name} exists"):
            unpack(archive, tmp_path / name, PLENTY)
    assert not any(target.iterdir()) and (tmp_path / "file").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_in_the_way_of_the_work_is_not_followed(tmp_path):
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "precious").write_bytes(b"mine")
    (tmp_path / ".out.unpacking").symlink_to(target)
    unpack(make(tmp_path / "a.zip", CONTENT), tmp_path / "out", PLENTY)
    assert tree(target) == {"precious": b"mine"} and tree(tmp_path / "out") == CONTENT


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    archive = make(tmp_path / "a.zip", CONTENT)
    monkeypatch.setattr(module._Tree, "_write", full)
    assert "No space left" in refusal(archive)


def test_ctrl_c_leaves_nothing(tmp_path):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    for kind in KINDS:
        with pytest.raises(KeyboardInterrupt):
            unpack(make(tmp_path / f"a.{kind}", CONTENT), tmp_path / "place" / "out", PLENTY, stop)
        assert not any((tmp_path / "place").iterdir())


SLOWLY = """
import sys, time
from segue.data.getting.unpack import unpack
def advance(done, total):
    print(done, flush=True)
    time.sleep(60)
unpack(sys.argv[1], sys.argv[2], 10**6, advance)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_then_repeated(tmp_path):
    archive, folder = make(tmp_path / "a.tar", CONTENT), tmp_path / "place" / "out"
    with subprocess.Popen([sys.executable, "-c", SLOWLY, archive, folder], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert [path.name for path in folder.parent.iterdir()] == [".out.unpacking"]  # it was in the middle
    assert not folder.exists()
    unpack(archive, folder, PLENTY)
    assert tree(folder) == CONTENT and [path.name for path in folder.parent.iterdir()] == ["out"]
