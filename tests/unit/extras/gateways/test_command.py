"""What a gateway check stores if it is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.command import _recorded
from vllm_harness.extras.gateways.recording import read
from vllm_harness.extras.gateways.scripts import GatewaySide

SIDE = GatewaySide("direct", Endpoint("http://127.0.0.1:1"), "qwen3")
EXCHANGE = SideExchange({"model": "qwen3"}, path="/v1/chat/completions", name="chat/text").answered(
    200, {"content-type": "application/json"}, [(0.1, b"{}")]
)


def test_interrupted_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), _recorded({tmp_path / "run": (SIDE, [EXCHANGE])}, None):
        raise KeyboardInterrupt
    assert read(tmp_path / "run")[1] == {"chat/text": EXCHANGE}
    assert str(tmp_path / "run") in capsys.readouterr().err


def test_run_interrupted_before_the_first_answer_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _recorded({tmp_path / "run": (SIDE, [])}, None):
        raise KeyboardInterrupt
    assert not (tmp_path / "run").exists()
