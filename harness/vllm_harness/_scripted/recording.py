"""The token ids that a server generates, recorded by its middleware; see `vllm_harness_recorder`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.in_server import vllm_harness_names as names

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


@contextmanager
def recorded(endpoint: Endpoint) -> Iterator[list[TokenRecord]]:
    """The requests that a server with RECORD_ARGS answers meanwhile, in order; filled in at the end."""
    records: list[TokenRecord] = []
    endpoint.post(names.RECORDING_PATH).raise_for_status()
    yield records
    answer = endpoint.get(names.RECORDING_PATH)
    answer.raise_for_status()
    records += [TokenRecord.model_validate(record) for record in answer.json()["records"]]
