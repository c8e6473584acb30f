"""The public interface: each name exists, is typed, documented and listed; the import loads nothing else."""

from __future__ import annotations

import ast
import doctest
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
from importlib.metadata import version

import pytest

import vllm_harness
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._testing.fixtures import ScriptWriter

HEAVY = {"openai", "pydantic", "pytest", "httpx2", "rich", "typer", "requests", "yaml"}


def examples() -> list[str]:
    """The indented code blocks in the docstring of vllm_harness."""
    text = inspect.cleandoc(vllm_harness.__doc__ or "")
    return [textwrap.dedent(block) for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text + "\n", re.MULTILINE)]


def in_a_new_process(code: str) -> set[str]:
    """Runs code in a new interpreter, and returns the words that it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_import_loads_nothing() -> None:
    names = in_a_new_process("import sys, vllm_harness; print(*sys.modules)")
    assert not {name.split(".")[0] for name in names} & HEAVY
    assert {name for name in names if name.startswith("vllm_harness")} == {"vllm_harness"}


def test_exported_members() -> None:
    """Once all exported names are loaded, the package has no other public names, except for modules."""
    code = "from types import ModuleType; import vllm_harness; from vllm_harness import *; "
    code += (
        "print(*(name for name, value in vars(vllm_harness).items() if not isinstance(value, ModuleType)))"
    )
    public = {name for name in in_a_new_process(code) if not name.startswith("_")}
    assert sorted({*public, "__version__"}) == vllm_harness.__all__


def test_the_version_is_that_of_the_distribution() -> None:
    assert vllm_harness.__version__ == version("vllm-harness")


def test_a_script_writer_takes_what_a_script_book_takes() -> None:
    writer, book = inspect.signature(ScriptWriter.__call__), inspect.signature(ScriptBook.script)
    assert writer.parameters == book.parameters


@pytest.mark.parametrize("name", vllm_harness.__all__)
def test_a_name_is_there_documented_and_shown(name: str) -> None:
    assert inspect.getdoc(getattr(vllm_harness, name))
    assert name in re.findall(r"\w+", vllm_harness.__doc__ or "")
    assert name in dir(vllm_harness)


def test_the_names_are_typed() -> None:
    """The imports under TYPE_CHECKING are the same names, from the modules that they are loaded from."""
    tree = ast.parse(inspect.getsource(vllm_harness))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: f"vllm_harness.{module}" for name, module in vllm_harness._HOMES.items()}
    assert sorted([*typed, "__version__"]) == vllm_harness.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RemoteServers'"):
        vllm_harness.RemoteServers  # noqa: B018


@pytest.mark.parametrize(
    "name", [name for name in vllm_harness.__all__ if name.endswith(("Error", "Died", "Failed", "Violation"))]
)
def test_a_traceback_shows_the_public_name_of_an_error(name: str) -> None:
    error = getattr(vllm_harness, name)
    assert error.__module__ == "vllm_harness"
    assert pickle.loads(pickle.dumps(error)) is error


@pytest.mark.parametrize("block", [block for block in examples() if block.strip()])
def test_examples_compile_and_import(block: str) -> None:
    imports = [node for node in ast.parse(block).body if isinstance(node, ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, []), "<example>", "exec"), {})


def test_the_checks_are_as_shown() -> None:
    result = doctest.testmod(vllm_harness)
    assert result.attempted > 3
    assert result.failed == 0
