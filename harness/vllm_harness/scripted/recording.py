"""The token ids that a server generates, recorded by its middleware; see `vllm_harness_recorder`."""

from __future__ import annotations

from typing import Any

from vllm_harness.exchange.endpoint import Endpoint
from vllm_harness.files.strict import StrictModel
from vllm_harness.scripted.in_server import vllm_harness_names as names

RECORD_ARGS = ("--middleware", names.RECORD_MIDDLEWARE)


class TokenRecord(StrictModel):
    """One request and what came of it; see `vllm_harness_recorder`."""

    path: str
    request: dict[str, Any]
    status: int | None
    answer: Any
    tokens: list[list[int]] | None

    @property
    def refused(self) -> bool:
        """Whether it was answered with an error."""
        return self.status is None or self.status >= 400

    @property
    def scriptable(self) -> bool:
        """Whether it can be scripted: its tokens are known, or there are none to know.

        What else the model might have generated, and how likely, no stand-in knows.
        """
        return self.refused or (bool(self.tokens) and not self.request.get("top_logprobs"))


def begin(endpoint: Endpoint) -> None:
    """Begins a recording on a server that was started with RECORD_ARGS."""
    endpoint.post(names.RECORDING_PATH).raise_for_status()


def taken(endpoint: Endpoint) -> list[TokenRecord]:
    """The requests since `begin`, in order."""
    answer = endpoint.get(names.RECORDING_PATH)
    answer.raise_for_status()
    return [TokenRecord.model_validate(record) for record in answer.json()["records"]]
