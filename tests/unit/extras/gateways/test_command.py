"""What the command keeps of a run that does not come to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.command import _kept
from vllm_harness.extras.gateways.recording import read
from vllm_harness.extras.gateways.scripts import GatewaySide

SIDE = GatewaySide("direct", Endpoint("http://127.0.0.1:1"), "qwen3")
CAME = SideExchange({"model": "qwen3"}, path="/v1/chat/completions", name="chat/text").answered(
    200, {"content-type": "application/json"}, [(0.1, b"{}")]
)


def test_an_interrupted_run_keeps_what_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), _kept({tmp_path / "run": (SIDE, [CAME])}, None):
        raise KeyboardInterrupt
    assert read(tmp_path / "run")[1] == {"chat/text": CAME}
    assert str(tmp_path / "run") in capsys.readouterr().err


def test_a_run_that_ends_before_anything_came_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _kept({tmp_path / "run": (SIDE, [])}, None):
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
