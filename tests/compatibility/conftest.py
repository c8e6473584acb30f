"""A small site of made-up results, and Chromium to look at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.conftest import Open, browser, opened
from tests.unit.compatibility.made import HOSTILE, cell, failing, site
from vllm_harness.compatibility.build import build

__all__ = ["Open", "browser", "built", "opened"]
CODER = {"family": "qwen3_coder", "tool_parser": "qwen3_coder"}


def build_small(out: Path) -> None:
    """A site of one family, whose calls are lost on 0.32.0 where it streams; what was answered is hostile."""
    selector = {"families": ["qwen3_coder"], "case": "call", "mismatches": ["call_lost"]}
    cells = (failing("0.32.0", answer=HOSTILE, **CODER), cell("0.31.0", **CODER))
    build(site(*cells, title=f"A call is lost {HOSTILE}", actual=HOSTILE, failures=[selector]), out)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    out = tmp_path_factory.mktemp("site") / "out"
    build_small(out)
    return out
