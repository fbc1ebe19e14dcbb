"""Every place that starts a process, runs code, unpickles, deletes, writes, decodes or reaches a network.

A table names the files that do, and why each is safe. A new place fails here until somebody has judged it; a
place that is gone fails, too, so that the tables stay true.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import segue

SOURCE = Path(segue.__file__).parent

IMPORTERS = {"needed", "_package", "onnx_package"}
"""functions of ours that import the package that they are given the name of"""

DANGERS = {
    "processes": r"(subprocess|multiprocessing|torch\.multiprocessing|pty)\..+"
    r"|os\.(system|popen|fork|forkpty|posix_spawnp?|startfile|exec\w+|spawn\w+)"
    r"|concurrent\.futures\.ProcessPoolExecutor|asyncio\.create_subprocess_\w+"
    r"|(torch\.utils\.data\.)?DataLoader|.+\.spawn|ray\.(init|remote)",
    "code": r"exec|eval|compile|__import__|runpy\..+|ctypes\..+"
    r"|importlib\.(import_module|reload|util\.spec_from_file_location|util\.module_from_spec)"
    r"|.+\.exec_module|torch\.hub\..+|torch\.utils\.cpp_extension\..+",
    "unpickling": r"(pickle|cPickle|_pickle|cloudpickle|dill|joblib|marshal|shelve|copyreg)\..+"
    r"|torch\.(load|jit\.load|export\.load|package\..+)|(np|numpy)\.(load|fromfile|memmap)"
    r"|torch\.distributed\.(.*object.*|rpc\..+)"
    r"|yaml\.(load|load_all|unsafe_load|full_load|Loader|UnsafeLoader|FullLoader).*"
    r"|.+\.(from_pretrained|from_config|for_model|InferenceSession)|timm\.create_model|onnx\.(load|hub\..+)",
    "deleting": r"shutil\.(rmtree|move)|os\.(remove|removedirs|unlink|rmdir|rename|renames|replace|truncate)"
    r"|.+\.(unlink|rmdir|rename|truncate|replace one)",
    "writing": r"open for writing|(?!segue\.).+\.(write_text|write_bytes|touch|chmod|save_pretrained)"
    r"|.+\.(symlink_to|hardlink_to)"
    r"|shutil\.(copy\w*|make_archive|chown)|os\.(symlink|link|mkfifo|chmod|chown|fdopen|ftruncate)"
    r"|(np|numpy)\.(save\w*|tofile)|tempfile\..+",
    "network": r"(socket|ssl|requests|httpx2?|aiohttp|urllib3|ftplib|smtplib|xmlrpc|websockets|pooch)\..+"
    r"|urllib\.request\..+|http\.(client|server)\..+|socketserver\..+|huggingface_hub\..+|uvicorn\..+"
    r"|(wandb|mlflow|ray)(\..+)?|torch\.hub\..+|webbrowser\..+|.+\.load_state_dict_from_url",
    "decoding": r"(PIL\.)?Image\.open|PIL\.Image(File|Show)\..+|av(\..+)?|(cv2|imageio|tifffile)\..+"
    r"|torchvision\.io\..+|matplotlib\.(image|animation)\..+|plt\.imread|(gzip|bz2|lzma|zipfile|tarfile)\..+"
    r"|zlib\.decompress\w*|shutil\.unpack_archive|xml\..+",
}

PLACES = {
    "processes": {
        "data/batches/loader.py": "workers, within `safe_path`",
        "studies/carry_out.py": "torchrun by its words, no shell, within `safe_path`",
        "studies/cluster.py": "a Ray cluster that the user names",
        "studies/pool.py": "runs side by side, within `safe_path`",
    },
    "code": {
        "__init__.py": "modules of the package, by a table",
        "cli/__init__.py": "modules of the package, by a listing of its own folder",
        "core/deferred.py": "files of the package",
        "core/extras.py": "packages by names that stand in the code",
        "core/launch.py": "prctl of the C library",
        "core/machine.py": "NVIDIA's management library",
        "core/plugins.py": "a file that a user, a recipe of his own or a run of his own names",
        "models/adopted/sources.py": "file.py:function that the user names; a description cannot",
    },
    "unpickling": {
        "core/image_counts.py": "allow_pickle=False, and no more than a bound",
        "core/yaml_text.py": "the strict loader, a child of the safe one",
        "deploy/export/smaller.py": "a file that it has written itself",
        "deploy/export/verify.py": "content that it has written itself",
        "deploy/onnx_model.py": "operators alone; weights outside the file are looked for in an empty folder",
        "deploy/teachers/torchscript.py": "a program that the user names, as docs/adopt-a-network.md says",
        "models/adopted/hf_files.py": "a folder, from a checked config, weights alone",
        "models/adopted/sources.py": "a config that names no file, address or code (described.py)",
        "models/backbone.py": "a name of timm's list",
        "models/weights_file.py": "weights_only=True",
    },
    "deleting": {
        "core/records.py": "its own temporary file",
        "data/annotations/target.py": "its own unfinished conversion, by a mark in it",
        "data/convert.py": "its own temporary file",
        "data/fetch/fetch.py": "a download takes the place of a file of its name",
        "data/fetch/unpack.py": "a new folder is moved to a place where none is",
        "deploy/card_pictures.py": "after check_place: pictures that a model folder of Segue lists",
        "deploy/extend.py": "a folder that was not there before",
        "deploy/folder_layout.py": "half-written files of a model, by their names; no links",
        "deploy/model_folder.py": "after check_place: files of a model folder of Segue",
        "deploy/new_data.py": "files that a conversion lists as its own; no links",
        "engine/checkpoint.py": "checkpoints of the run",
        "engine/folder.py": "empty folders that it has made",
        "engine/log.py": "the log of the run, to where it goes on",
        "engine/own_files.py": "files of a run by their names; no links",
        "models/_speed/fold.py": "no file: a pair of modules",
        "studies/demo.py": "the page of the demo, which is written anew",
        "studies/nodes.py": "its own probe",
        "studies/second_act.py": "images that it has just written",
    },
    "writing": {
        "core/image_counts.py": "into memory",
        "core/records.py": "whole or not at all, through no link below a root",
        "data/annotations/target.py": "into a new folder of its own",
        "data/convert.py": "into a new folder of its own",
        "data/fetch/download.py": "into a new folder of its own",
        "data/fetch/fetch.py": "a new folder of its own",
        "deploy/export/smaller.py": "a new folder of its own",
        "deploy/families/hf.py": "into a folder that was new or empty",
        "deploy/families/smp.py": "into a folder that was new or empty",
        "deploy/onnx_model.py": "an empty folder",
        "engine/device.py": "a number for the kernel",
        "studies/carry_out.py": "a new folder of its own",
        "studies/nodes.py": "a probe with a random name",
        "studies/reproduce.py": "a file without a name, to see whether a folder can be written",
    },
    "network": {
        "data/fetch/download.py": "segue data fetch: published addresses and digests, or the user's mirror",
        "data/fetch/fetch.py": "digests alone",
        "deploy/serve/connections.py": "limits of the server's connections",
        "deploy/serve/run.py": "segue serve listens where the user says",
        "engine/interrupt.py": "a pair of sockets inside the process",
        "engine/track.py": "offline unless the environment says otherwise",
        "models/_hub.py": "model.pretrained=true alone: whether the hub is there",
        "studies/cluster.py": "a Ray cluster that the user names",
    },
    "decoding": {
        "core/image_counts.py": "sizes are added up before anything is unpacked",
        "data/fetch/unpack.py": "no links, no devices, names inside, a bound; a digest was checked before",
        "data/image_files.py": "six formats of PIL, by name, with a bound",
        "deploy/annotate.py": "escapes text for XML, reads none",
        "deploy/video.py": "containers by the file's ending, which name no other file",
        "models/weights_file.py": "checksums of the members, read in pieces that are not kept",
        "report/paper_figures.py": "PNG alone",
        "report/pictures.py": "PNG alone",
    },
}
"""files of the package by what they do, and why it is safe there"""

GUARDED = {
    "torch.load": {"weights_only": "True"},
    "numpy.load": {"allow_pickle": "False"},
    "yaml.load": {"Loader": "StrictLoader"},
    "().from_pretrained": {"local_files_only": "True", "trust_remote_code": "False", "weights_only": "True"},
    "transformers.AutoModelForSemanticSegmentation.from_config": {"trust_remote_code": "False"},
    "PIL.Image.open": {"formats": None},
    "av.open": {"format": None},
    "packed.extractall": {"filter": None},
}
"""arguments that calls cannot do without, and their values; None: any"""


def dotted(node: ast.expr, known: dict[str, str]) -> str:
    """a.b.c of an expression, by its imports; what is computed on the way is `()`."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, known)}.{node.attr}"
    return "()"


def imported(tree: ast.Module) -> dict[str, str]:
    """What the names of a file stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def called(node: ast.Call, name: str) -> Iterator[str]:
    """What the arguments of a call tell beside its name."""
    words = [
        each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    modes = [each.value for each in node.keywords if each.arg == "mode"]
    words += [each.value for each in modes if isinstance(each, ast.Constant)]
    if name.split(".")[-1] == "open" and any(re.fullmatch(r"[rbt]*[wax+][wbtax+]*", word) for word in words):
        yield "open for writing"
    if name.endswith(".replace") and len(node.args) == 1 and not node.keywords:  # text has two arguments
        yield f"{name} one"
    if name.split(".")[-1] in IMPORTERS and words:
        yield words[0]


def names(text: str) -> set[str]:
    """Everything that a file imports, names and calls."""
    tree = ast.parse(text)
    known = imported(tree)
    found = set(known.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(f"{alias.name}.*" for alias in node.names)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(dotted(node, known))
        elif isinstance(node, ast.Call):
            found.update(called(node, dotted(node.func, known)))
    return found


def places(danger: str, root: Path = SOURCE) -> dict[str, set[str]]:
    """The files of a danger, with the names that make it one."""
    pattern = re.compile(DANGERS[danger])
    found = {}
    for path in sorted(root.rglob("*.py")):
        hits = {name for name in names(path.read_text(encoding="utf-8")) if pattern.fullmatch(name)}
        if hits:
            found[path.relative_to(root).as_posix()] = hits
    return found


def unguarded(text: str) -> list[str]:
    """Calls of a file without the arguments that make them safe."""
    tree = ast.parse(text)
    known, found = imported(tree), []
    for node in ast.walk(tree):
        wanted = GUARDED.get(dotted(node.func, known), {}) if isinstance(node, ast.Call) else {}
        given = {each.arg: ast.unparse(each.value) for each in node.keywords} if wanted else {}
        for name, value in wanted.items():
            if name not in given or value not in (None, given[name]):
                found.append(f"line {node.lineno}: {ast.unparse(node.func)} without {name}={value or '...'}")
    return found


@pytest.mark.parametrize("danger", DANGERS)
def test_every_dangerous_place_was_judged(danger: str) -> None:
    found = places(danger)
    new = {file: sorted(hits) for file, hits in found.items() if file not in PLACES[danger]}
    assert new == {}, "judge it, then list it"
    assert sorted(set(PLACES[danger]) - set(found)) == [], "gone: take it off the list"


def test_calls_have_the_arguments_that_make_them_safe() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    assert {file: lines for file, text in files.items() if (lines := unguarded(text))} == {}


def test_processes_start_without_the_current_folder() -> None:
    for file in PLACES["processes"].keys() - {"studies/cluster.py"}:
        assert "segue.core.launch.safe_path" in names((SOURCE / file).read_text(encoding="utf-8")), file


@pytest.mark.parametrize(
    ("danger", "text"),
    [
        ("processes", "import subprocess\nsubprocess.run(['ls'])"),
        ("processes", "from os import system as go\ngo('ls')"),
        ("processes", "from concurrent.futures import ProcessPoolExecutor"),
        ("processes", "from torch.utils.data import DataLoader\nDataLoader(x, num_workers=2)"),
        ("code", "exec(text)"),
        ("code", "def f(s):\n    return eval(s)"),
        ("code", "from importlib import import_module\nimport_module(name)"),
        ("unpickling", "import torch\ntorch.load(path)"),
        ("unpickling", "from torch import load\nload(path)"),
        ("unpickling", "import numpy as np\nnp.load(path)"),
        ("unpickling", "from pickle import loads"),
        ("unpickling", "import transformers\ntransformers.AutoModel.from_pretrained(name)"),
        ("unpickling", "import timm\ntimm.create_model(name)"),
        ("unpickling", "import torch.distributed as dist\ndist.broadcast_object_list(message)"),
        ("deleting", "import shutil\nshutil.rmtree(folder)"),
        ("deleting", "(folder / name).unlink()"),
        ("deleting", "path.replace(other)"),
        ("deleting", "import os\nlist(map(os.remove, files))"),
        ("writing", "path.write_text('x')"),
        ("writing", "open(path, 'w')"),
        ("writing", "path.open(mode='ab')"),
        ("writing", "from shutil import copytree"),
        ("network", "import requests\nrequests.get(url)"),
        ("network", "from urllib.request import urlopen"),
        ("network", "from huggingface_hub import hf_hub_download"),
        ("network", "from segue.core.extras import needed\nneeded('wandb', 'wandb', 'It')"),
        ("network", "import torch\ntorch.hub.load('x', 'y')"),
        ("decoding", "from PIL import Image\nImage.open(path)"),
        ("decoding", "import PIL.Image\nPIL.Image.open(path)"),
        ("decoding", "import zipfile\nzipfile.ZipFile(path)"),
        ("decoding", "from torchvision.io import decode_image"),
        ("decoding", "from segue.core.extras import needed\nav = needed('av', 'video', 'It')"),
    ],
)
def test_a_new_place_is_seen(tmp_path: Path, danger: str, text: str) -> None:
    (tmp_path / "new.py").write_text(text)
    assert places(danger, tmp_path).keys() == {"new.py"}


@pytest.mark.parametrize(
    "text", ["text.replace('a', 'b')", "import re\nre.compile('x')", "model.eval()", "open(path, 'rb')"]
)
def test_what_is_harmless_is_not_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "new.py").write_text(text)
    assert [danger for danger in DANGERS if places(danger, tmp_path)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import numpy as np\nnp.load(path)",
        "from PIL import Image\nImage.open(path)",
        "getattr(hf, name).from_pretrained(folder, local_files_only=True, weights_only=True)",
    ],
)
def test_a_missing_argument_is_seen(text: str) -> None:
    assert unguarded(text)
