"""A script with the tokens that SmolLM2 generated on a GPU, in bfloat16, gives the same answers elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.own_server import OwnServer
from vllm_harness._configuration.model_entries import load_models
from vllm_harness._scripted.book import ScriptBook
from vllm_harness._scripted.recording import RECORD_ARGS, TokenRecord, recorded
from vllm_harness._testing.tokens import differences, read, script_recording

# recorded by the second step of scripts/gpu-check on one H200, with vLLM 0.32.0 and driver 580.159.04
RECORDED = Path(__file__).parent / "smollm2-on-h200.jsonl"


@pytest.mark.vllm_scripted
def test_a_recording_of_a_gpu_is_reproduced(own_server: OwnServer) -> None:
    server = own_server(RECORD_ARGS, entry=load_models().get("smollm2-135m"))
    before, ids = read(RECORDED), dict[str, str]()
    book = ScriptBook(server.endpoint, server.entry)
    script_recording(before, book)
    with recorded(server.endpoint) as again:
        for record in before:
            answer = book.endpoint.post(record.path, json=_request(record, ids))
            if not record.request.get("stream"):
                ids[record.answer["id"]] = answer.json()["id"]
    book.close()
    assert differences(before, again) == []
    assert [record.tokens for record in again] == [record.tokens for record in before]


def _request(record: TokenRecord, ids: dict[str, str]) -> dict[str, Any]:
    previous = record.request.get("previous_response_id")
    return {**record.request, "previous_response_id": ids[previous]} if previous else record.request
