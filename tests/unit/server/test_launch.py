"""A launch that is impossible is refused before anything is fetched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.closing_server import certificate_in
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._machine.gpus import TABLE_VARIABLE
from vllm_harness._server import launch
from vllm_harness._server.flags import flag_values
from vllm_harness._server.launch import plan_launch

CUDA = Environment("installed", Path(sys.executable), "3", "0.32.0", "cuda", None)
CPU = Environment("installed", Path(sys.executable), "3", "0.32.0", "cpu", None)


def test_the_hint_names_the_scripted_lane() -> None:
    with pytest.raises(UsageError, match="'smolvlm-256m' does not run live on cpu") as raised:
        plan_launch(load_models().get("smolvlm-256m"), CPU, lane="live")
    assert raised.value.hint == "use the scripted lane"


@pytest.mark.parametrize(("gib", "part"), [(80, 0.05), (24, 0.167), (4, 0.9)])
def test_a_stand_in_uses_a_part_of_its_gpu(
    gib: int, part: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "gpus.json"
    smallest = {"index": 0, "uuid": "GPU-0", "name": "Test GPU", "total_bytes": gib * 2**30}
    table.write_text(json.dumps([smallest, {**smallest, "index": 1, "uuid": "GPU-1", "total_bytes": 2**40}]))
    monkeypatch.setenv(TABLE_VARIABLE, str(table))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(launch, "fetched_stand_in", lambda *_: ("model", (), {}))
    args = plan_launch(load_models().get("qwen3"), CUDA, lane="scripted").args
    assert flag_values(args, [("--gpu-memory-utilization",)], float, 0.0) == [part]
    assert (
        "--gpu-memory-utilization" not in plan_launch(load_models().get("qwen3"), CPU, lane="scripted").args
    )


def test_the_key_and_the_certificate_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last flag counts, however it is spelled; a certificate that clients cannot trust is refused."""
    monkeypatch.setattr(launch, "fetched_stand_in", lambda *_: ("model", (), {}))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    def planned(*args: str, **more: Any) -> launch.Launch:
        return plan_launch(load_models().get("qwen3"), CPU, lane="scripted", args=args, **more)

    plain = planned("--api-key", "first", "--api_key=k", "other").endpoint(1)
    assert plain == Endpoint("http://127.0.0.1:1", "k", plain.request_s)
    assert planned(env={"VLLM_API_KEY": "e"}).endpoint(1).api_key == "e"
    certificate = certificate_in(tmp_path)
    secure = planned("--ssl-certfile", str(certificate), "--ssl-keyfile", "key").endpoint(1)
    assert secure == Endpoint("https://127.0.0.1:1", request_s=plain.request_s, ca=certificate)
    for path, message in [("cert.pem", "absolute"), (f"{tmp_path}/none.pem", "no certificates")]:
        with pytest.raises(UsageError, match=message):
            planned(f"--ssl-certfile={path}")
