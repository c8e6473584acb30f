"""The generated pages and the handwritten page of environment variables are complete."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import vllm_harness
from tests.docs.blocks import ROOT
from tests.docs.hook import generated_pages, load_hook
from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.registry import load_defects
from vllm_harness._testing import options
from vllm_harness.cli.main import app
from vllm_harness.extras.upstream import measured

VARIABLE = re.compile(r"\bVLLM_HARNESS_[A-Z][A-Z_]*[A-Z]\b")
CODE = ("harness", "scripts", "tests")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The texts of the generated pages, by path."""
    return generated_pages()


def test_every_command_and_option_is_on_its_page(pages: dict[str, str]) -> None:
    page = pages["reference/commands.md"]
    commands = [("vllm-harness", typer.main.get_command(app))]
    while commands:
        name, command = commands.pop()
        assert f"`{name} " in page
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                assert all(option in page for option in parameter.opts)
        if isinstance(command, TyperGroup):
            commands += [(f"{name} {key}", of) for key, of in command.commands.items() if not of.hidden]


def test_every_option_and_marker_is_on_its_page(pages: dict[str, str]) -> None:
    page = pages["reference/pytest.md"]
    for marker in options.MARKERS:
        assert f"`{marker.partition(': ')[0]}`" in page
    for option in options.OPTIONS:
        assert f"`{option}`" in page


@pytest.mark.parametrize(
    "fixture", ["vllm_server", "openai_client", "async_openai_client", "script", "check_stream", "check_same"]
)
def test_fixture_is_on_its_page(fixture: str, pages: dict[str, str]) -> None:
    assert re.search(rf"^\| `{fixture}` \| \w", pages["reference/pytest.md"], re.M)


@pytest.mark.parametrize("key", [key for key in ModelEntry.model_fields if key != "name"])
def test_key_of_a_model_entry_is_on_its_page(key: str, pages: dict[str, str]) -> None:
    assert f"| `{key}` |" in pages["reference/models.md"]


def test_every_upstream_run_is_on_its_page(pages: dict[str, str]) -> None:
    page = pages["reference/upstream-tests.md"]
    for run in measured.read():
        assert f"## The tests of {run.tests} against {run.vllm}\n" in page
        assert all(f"| {file} |" in page for file in run.files)


@pytest.mark.parametrize("name", [name for name in vllm_harness.__all__ if name != "__version__"])
def test_every_public_name_is_on_its_page(name: str, pages: dict[str, str]) -> None:
    """The page has a heading with the name, followed by the docstring and the signature."""
    _, _, section = pages["reference/python.md"].partition(f"\n### `{name}`\n")
    section = section.partition("\n### ")[0]
    value = getattr(vllm_harness, name)
    assert inspect.cleandoc(value.__doc__).splitlines()[0] in section
    assert "```python" in section or issubclass(value, Enum)


def test_the_python_page_has_the_version(pages: dict[str, str]) -> None:
    assert "`vllm_harness.__version__`" in pages["reference/python.md"]


def test_the_python_page_has_arguments_and_errors(pages: dict[str, str]) -> None:
    page = pages["reference/python.md"]
    assert "| `lane` | `live` (real weights) or `scripted` (stand-in checkpoint, scripted tokens). |" in page
    assert "| `StopFailed` | on leaving, a process survived" in page
    assert "`server.script(`" in page or "#### `RemoteServer.script`" in page
    assert not re.search(r"vllm_harness\._[a-z]", page)
    assert "<function" not in page
    assert "<factory>" not in page


def test_every_defect_is_on_its_page(pages: dict[str, str]) -> None:
    page = pages["reference/defects.md"]
    assert all(f"| `{defect}` |" in page for defect in load_defects())


def test_tags_that_load_from_another_host_are_found() -> None:
    found = load_hook().loaded_from_elsewhere
    assert found('<script src="https://cdn.example/x.js"></script>')
    assert found("<link rel=stylesheet href=//fonts.example/css>")
    assert not found('<script src="assets/x.js"></script><a href="https://example.org">a link to follow</a>')


def test_the_manual_builds(tmp_path: Path) -> None:
    """The build is strict: a broken link, or a tag that loads from another host, fails it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "reference" / "commands.html").is_file()


def test_every_variable_is_on_its_page() -> None:
    page = (ROOT / "docs" / "reference" / "variables.md").read_text()
    files = (path for folder in CODE for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ""})
    text = "\n".join(path.read_text(errors="replace") for path in files if path.is_file())
    assert set(VARIABLE.findall(text)) == set(VARIABLE.findall(page))
