"""The self-test of private names: it passes on this Triton, and fails by name when one changes."""

import pathlib
import re

import pytest

import kernelcheck
from kernelcheck import _triton
from kernelcheck._triton import Name, TritonChanged

PACKAGE = pathlib.Path(_triton.__file__).parent


@pytest.fixture(autouse=True)
def _as_shipped():
    """The names of the Triton that is installed, not those of our repairs."""
    kernelcheck.uninstall()
    yield
    kernelcheck.install()


def test_every_private_name_is_there():
    _triton.verify()


def test_a_name_that_goes_or_changes_is_named():
    for name in _triton.PRIVATE_NAMES:
        full = re.escape(f"{name.module}.{name.path}")
        with pytest.raises(TritonChanged, match=full + "_new is gone"):
            _triton.verify((Name(name.module, name.path + "_new"),))
        if name.parameters:
            with pytest.raises(TritonChanged, match=full + " takes"):
                _triton.verify((Name(name.module, name.path, ("something", "else")),))


def test_verify_notices_a_real_change(monkeypatch):
    builder = _triton.interpreter().InterpreterBuilder
    monkeypatch.delattr(builder, "create_dot")
    with pytest.raises(TritonChanged, match=r"InterpreterBuilder\.create_dot is gone"):
        _triton.verify()


def test_the_docstring_lists_every_private_name():
    listed = set(re.findall(r"[A-Za-z_]+", _triton.__doc__))
    for name in _triton.PRIVATE_NAMES:
        for part in name.path.split("."):
            if part not in (
                "options",
                "debug",
                "ROUNDING_MODE",
                "RTZ",
                "INPUT_PRECISION",
                "TF32",
                "MEM_SEMANTIC",
                "RELAXED",
            ):
                assert part in listed, f"{name.path} is not in the docstring of _triton.py"


def test_no_other_module_imports_private_triton():
    for path in PACKAGE.glob("*.py"):
        if path.name == "_triton.py":
            continue
        found = re.findall(
            r"^\s*(?:from|import) triton\.(?!language|compiler|backends\.compiler)\S+", path.read_text(), re.M
        )
        assert not found, f"{path.name} reaches into Triton: {found}"


def test_an_unknown_release_is_refused(monkeypatch):
    monkeypatch.setattr("triton.__version__", "3.10.1")
    assert not _triton.supported()
    monkeypatch.setattr("triton.__version__", "3.7.1+git123")
    assert _triton.supported()
