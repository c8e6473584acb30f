"""Responses on gpt-oss: log-probabilities, which vLLM does not give there."""

from __future__ import annotations

import pytest

from tests.responses_api import Responses, items
from vllm_harness.testing.fixtures import ScriptWriter

pytestmark = [pytest.mark.vllm_harmony, pytest.mark.vllm_needs("responses")]


@pytest.mark.covers("VR-005", "LS-005")
@pytest.mark.vllm_known_defect("vllm-23225")
def test_logprobs_of_a_text(responses: Responses, script: ScriptWriter) -> None:
    script("Paris.")
    response = responses.create("Capital?", include=["message.output_text.logprobs"], top_logprobs=2)
    assert items(response, "message")[-1].content[0].logprobs
