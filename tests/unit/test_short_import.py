"""The short import: each name is there, typed, documented and shown; the import itself loads nothing."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import subprocess
import sys
import textwrap

import pytest

import vllm_harness

HEAVY = {"openai", "pydantic", "pytest", "httpx2", "rich", "typer", "requests", "yaml"}


def examples() -> list[str]:
    """The indented blocks of code in the module's docstring."""
    text = inspect.cleandoc(vllm_harness.__doc__ or "")
    return [textwrap.dedent(block) for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text + "\n", re.MULTILINE)]


def test_the_import_loads_nothing() -> None:
    code = "import sys, vllm_harness; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = set(loaded.stdout.split())
    assert not {name.split(".")[0] for name in names} & HEAVY
    assert {name for name in names if name.startswith("vllm_harness")} == {"vllm_harness"}


@pytest.mark.parametrize("name", vllm_harness.__all__)
def test_a_name_is_there_documented_and_shown(name: str) -> None:
    assert inspect.getdoc(getattr(vllm_harness, name))
    assert name in re.findall(r"\w+", vllm_harness.__doc__ or "")
    assert name in dir(vllm_harness)


def test_the_names_are_typed() -> None:
    """A type checker sees the imports under TYPE_CHECKING: the same names, from where they are loaded."""
    tree = ast.parse(inspect.getsource(vllm_harness))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: f"vllm_harness.{module}" for name, module in vllm_harness._HOMES.items()}
    assert sorted(typed) == vllm_harness.__all__


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RemoteServers'"):
        vllm_harness.RemoteServers  # noqa: B018


@pytest.mark.parametrize("block", [block for block in examples() if block.strip()])
def test_examples_compile_and_import(block: str) -> None:
    imports = [node for node in ast.parse(block).body if isinstance(node, ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, []), "<example>", "exec"), {})


def test_the_checks_are_as_shown() -> None:
    result = doctest.testmod(vllm_harness)
    assert result.attempted > 3
    assert result.failed == 0
