"""Runs the Python code in README and manual: tests as tests in this module, other blocks as programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.blocks import BLOCKS, Block, written_in

pytestmark = [pytest.mark.vllm_scripted, pytest.mark.vllm_model("qwen3")]  # the model that the pages name

PROGRAMS = [block for block in written_in("python") if not block.has_tests]


def _run(block: Block) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": str(block)}
    exec(compile(block.tree(), block.page, "exec"), names)
    return names


def _tests(block: Block) -> dict[str, Any]:
    """The test functions of a block, with the page in their names."""
    page = block.page.removesuffix(".md").replace("/", "_").replace("-", "_")
    found = {name: value for name, value in _run(block).items() if name.startswith("test_")}
    return {f"{name}_of_{page}_{block.line}": value for name, value in found.items()}


for _block in written_in("python"):
    if _block.has_tests:
        globals().update(_tests(_block))


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_program_prints_what_the_page_shows(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [output.text for output in BLOCKS if output.follows == block and output.language == "text"]
    _run(block)
    printed = capsys.readouterr().out
    assert not shown or printed == shown[0]
