"""Reads the token ids that the middleware in `vllm_harness_recorder` records in a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vllm_harness._exchange.endpoint import Endpoint
from vllm_harness._files.strict import StrictModel
from vllm_harness._scripted.in_server import vllm_harness_names as names

RECORD_ARGS = ("--middleware", names.RECORD_MIDDLEWARE)


class TokenRecord(StrictModel):
    """A request with its answer and tokens; see `vllm_harness_recorder`."""

    path: str
    request: dict[str, Any]
    status: int | None
    answer: Any
    tokens: list[list[int]] | None

    @property
    def refused(self) -> bool:
        """Whether the answer was an error."""
        return self.status is None or self.status >= 400

    @property
    def scriptable(self) -> bool:
        """Whether a script can repeat the answer: the answer's tokens are known, or it is an error.

        False if the request has `top_logprobs`: a stand-in does not know the probabilities of other tokens.
        """
        return self.refused or (bool(self.tokens) and not self.request.get("top_logprobs"))


@contextmanager
def recorded(endpoint: Endpoint) -> Iterator[list[TokenRecord]]:
    """Records the requests that a server started with RECORD_ARGS answers; fills the list at the end."""
    records: list[TokenRecord] = []
    endpoint.post(names.RECORDING_PATH).raise_for_status()
    yield records
    answer = endpoint.get(names.RECORDING_PATH)
    answer.raise_for_status()
    records += [TokenRecord.model_validate(record) for record in answer.json()["records"]]
