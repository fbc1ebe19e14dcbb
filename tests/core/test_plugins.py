"""Plug-ins are found by the name of their file, inside the package or out of it."""

import sys

import pytest

from segue.core import plugins
from segue.core.errors import UserError

PLUGIN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    rate: "float" = 0.5

METHOD = Mine
"""


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A kind `method` whose package lies in a temporary folder and holds `mib`, `ewc` and `empty`."""
    package = tmp_path / "plugin_zoo"
    package.mkdir()
    for name, text in {"__init__": "", "base": "", "mib": PLUGIN, "ewc": PLUGIN, "empty": "x = 1"}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "KINDS", {"method": ("plugin_zoo", "METHOD")})
    yield package
    for module in [name for name in sys.modules if name.split(".")[0] == "plugin_zoo"]:
        del sys.modules[module]


@pytest.fixture
def outside(tmp_path):
    """Writes a file outside any package; forgets its module afterwards."""
    before = set(sys.modules)

    def write(name: str, text: str):
        path = tmp_path / "elsewhere" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    yield write
    for module in set(sys.modules) - before:
        if module.startswith("segue_plugin_"):
            del sys.modules[module]


def test_names_are_the_files_without_base(zoo):
    assert plugins.names("method") == ["empty", "ewc", "mib"]
    (zoo / "added.py").write_text(PLUGIN)
    assert plugins.names("method")[0] == "added"


def test_find_by_name(zoo):
    assert plugins.find("method", "mib")().rate == 0.5
    assert plugins.find("method", "mib") is plugins.find("method", "mib")


@pytest.mark.parametrize(
    ("name", "message"), [("mbi", "Did you mean 'mib'"), ("base", "There is no method 'base'")]
)
def test_unknown_name_is_refused(zoo, name, message):
    with pytest.raises(UserError, match=message):
        plugins.find("method", name)


def test_module_without_its_word_is_refused(zoo):
    with pytest.raises(UserError, match=r"empty\.py .*add a line 'METHOD = YourClass'"):
        plugins.find("method", "empty")


def test_shipped_data_sets_leave_base_out():
    assert "base" not in plugins.names("dataset")
    with pytest.raises(UserError, match="There is no dataset 'base'"):
        plugins.find("dataset", "base")


def test_find_by_file(outside):
    found = plugins.find("method", str(outside("my_method.py", PLUGIN)))
    assert found().rate == 0.5
    assert found.__module__ == "segue_plugin_my_method"


def test_a_file_is_executed_again_only_if_it_has_changed(outside, tmp_path):
    path = outside("my_method.py", PLUGIN)
    found = plugins.find("method", str(path))
    (tmp_path / "my_method.py").write_text(PLUGIN.replace("0.5", "0.7").replace("float", "int | float"))
    other = plugins.find("method", str(tmp_path / "my_method.py"))
    assert other().rate == 0.7 and plugins.find("method", str(path)) is found
    assert sys.modules[found.__module__].METHOD is found, "its types are looked up there"
    path.write_text(PLUGIN.replace("0.5", "0.6"))
    assert plugins.find("method", str(path))().rate == 0.6


def test_file_without_its_word_is_refused(outside):
    with pytest.raises(UserError, match=r"nothing\.py .*add a line 'METHOD = YourClass'"):
        plugins.find("method", str(outside("nothing.py", "x = 1")))


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*absent\.py"):
        plugins.find("method", str(tmp_path / "absent.py"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n1 / 0", r"broken\.py cannot be imported \(line 2\): ZeroDivisionError"),
        ("def (:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_error_inside_a_file_is_named(outside, text, message):
    with pytest.raises(UserError, match=message):
        plugins.find("method", str(outside("broken.py", text)))


def test_error_of_a_file_while_it_is_used_names_its_line(outside):
    path = outside("late.py", "def fail():\n    raise KeyError('x')\n\nMETHOD = fail\n")
    with pytest.raises(KeyError) as raised:
        plugins.find("method", str(path))()
    assert str(plugins.own_error(raised.value)) == f"{path.resolve()}, line 2: KeyError: 'x'"
    assert plugins.own_error(KeyError("elsewhere")) is None


@pytest.mark.parametrize("path", ["~nobody-of-this-name/mine.py", "a\0b.py"])
def test_path_that_cannot_be_is_a_missing_file(path):
    with pytest.raises(UserError, match="There is no file"):
        plugins.find("method", path)
