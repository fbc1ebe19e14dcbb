"""What a method declares is known without torch, and is what its class says."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from segue.core import plugins
from segue.core.declaration import Declaration, keeps
from segue.core.deferred import DeferredModule, import_quickly
from segue.losses.features import AdForm, AdNorm
from segue.losses.pixel import GammaReading
from segue.losses.pseudo import MedianReading
from segue.methods.caf.config import AdConfig
from segue.methods.caf.config import Config as CafConfig
from segue.methods.plop import Config as PlopConfig

SLOW = ("torch", "torchvision", "timm")


def described(method: type[Declaration]) -> dict[str, Any]:
    """All that a method declares, as text that is equal in every process."""
    return {
        "name": method.__name__,
        "config": settings(method.Config),
        "about": repr(method.about),
        "keeps": keeps(method),
        "benchmark_values": repr(method.benchmark_values),
        "variants": repr(method.variants),
        "offline": method.offline,
    }


def settings(config: type) -> list[Any]:
    """Fields with types and defaults, and those of the sections."""
    hints, found = get_type_hints(config, include_extras=True), [config.__module__]
    for field in dataclasses.fields(config):
        kind = hints[field.name]
        section = settings(kind) if dataclasses.is_dataclass(kind) else None
        found.append([field.name, repr(kind), repr(getattr(config(), field.name)), section])
    return found


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_declarations_without_torch_are_those_of_the_classes() -> None:
    code = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from segue.core import plugins
found = {{name: plugins.declared(name) for name in plugins.names("method")}}
assert not set(sys.modules) & set({SLOW!r}), "slow modules are imported"
configs = {{name: each.Config for name, each in found.items()}}
import test_declared  # from here on with torch
print(json.dumps({{name: test_declared.described(each) for name, each in found.items()}}))
for name in found:
    assert plugins.find("method", name).Config is configs[name], "a class exists once"
"""
    found = json.loads(python("-c", code))
    assert found == {name: described(plugins.find("method", name)) for name in plugins.names("method")}


@pytest.mark.parametrize(
    "words",
    [
        ("show", "caf", "--on", "voc", "--split", "15-5"),
        ("list", "methods"),
        ("train", "caf", "--on", "voc", "--split", "15-5", "optim.lr_nxt=1"),
        ("train", "caf", "--on", "voc", "--split", "15-5", "method.params.kd_wait=1"),
    ],
    ids=" ".join,
)
def test_no_torch_before_it_is_needed(words: tuple[str, ...]) -> None:
    code = f"""
import sys
from segue.cli import main
sys.argv = ["segue", *{words!r}]
try:
    main()
except SystemExit as end:
    code = end.code or 0
else:
    code = 0
print("code", code, sorted(set(sys.modules) & set({SLOW!r})))
"""
    expected = 2 if words[0] == "train" else 0
    assert python("-c", code).splitlines()[-1] == f"code {expected} []"


def test_choices_of_settings_are_those_of_the_losses() -> None:
    """Settings may not import the losses, which need torch: they name the choices again."""
    for config, name, choices in (
        (AdConfig, "form", AdForm),
        (AdConfig, "norm", AdNorm),
        (CafConfig, "gamma", GammaReading),
        (PlopConfig, "median", MedianReading),
    ):
        assert get_args(get_type_hints(config)[name]) == get_args(choices)


# Modules that are run in two parts

MODULE = '''"""A module."""
from __future__ import annotations

import math
from dataclasses import dataclass

from slow_things import Base, Word

@dataclass(frozen=True)
class Config:
    rate: float = math.tau
    word: Word = "yes"

VALUES = {"rate": 2.0}

class Mine(Base):
    Config = Config
    variants = {"fast": VALUES}
    slow = Word

    def work(self):
        return VALUES

METHOD = Mine
'''
SLOW_THINGS = "Word = str\nclass Base:\n    offline = False\n"


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A package with a method that needs a slow module."""
    package = tmp_path / "quick_zoo"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "slow_things.py").write_text(SLOW_THINGS)

    def write(text: str) -> None:
        (package / "mine.py").write_text(text)

    write(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "KINDS", {"method": ("quick_zoo", "METHOD")})
    monkeypatch.delitem(sys.modules, "torch")
    yield write
    for name in [name for name in sys.modules if name.split(".")[0] in ("quick_zoo", "slow_things")]:
        del sys.modules[name]


def test_the_rest_runs_when_it_is_asked_for(zoo) -> None:
    module = import_quickly("quick_zoo.mine")
    assert isinstance(module, DeferredModule) and "slow_things" not in sys.modules
    assert module.VALUES == {"rate": 2.0} and module.__doc__ == "A module."
    config = module.Config
    from quick_zoo.mine import METHOD, Mine

    assert METHOD is Mine is module.Mine and Mine.Config is config is module.Config
    assert "slow_things" in sys.modules and not isinstance(module, DeferredModule)
    assert import_quickly("quick_zoo.mine") is module
    with pytest.raises(AttributeError, match="nothing"):
        module.nothing  # noqa: B018


def test_declarations_are_read_without_the_rest(zoo) -> None:
    zoo(MODULE.replace("word: Word", "word: str"))
    found = plugins.declared("mine")
    assert issubclass(found, Declaration) and "slow_things" not in sys.modules
    assert found.variants == {"fast": {"rate": 2.0}} and found.offline is False
    assert not hasattr(found, "work") and not hasattr(found, "slow")
    assert plugins.find("method", "mine").Config is found.Config


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),  # the type of a setting is slow
        ('{"fast": VALUES}', '{"fast": Word}'),
        ("METHOD = Mine", "METHOD = type('Made', (Mine,), {})"),
    ],
)
def test_what_cannot_be_read_so_is_imported(zoo, old: str, new: str) -> None:
    text = MODULE.replace("word: Word", "word: str") if old else MODULE
    assert old in text
    zoo(text.replace(old, new))
    found = plugins.declared("mine")
    assert "slow_things" in sys.modules and hasattr(found, "work")


def test_a_rest_that_fails_is_no_module(zoo) -> None:
    zoo(f"{MODULE}\n1 / Base.offline\n")
    module = import_quickly("quick_zoo.mine")
    with pytest.raises(ZeroDivisionError):
        module.Mine  # noqa: B018
    assert "quick_zoo.mine" not in sys.modules
