"""Transports: how the turns of a conversation become requests of an API, and answers become meanings."""

from __future__ import annotations

from vllm_harness.errors import UsageError
from vllm_harness.scenarios.transports import chat, messages, responses
from vllm_harness.scenarios.transports.transport import Transport

TRANSPORTS = {
    each.name: each for each in (responses.WITH_STATE, responses.WITH_HISTORY, chat.CHAT, messages.MESSAGES)
}


def find_transport(name: str) -> Transport:
    """The transport of a name. Raises UsageError."""
    if name not in TRANSPORTS:
        raise UsageError(
            f"there is no transport {name!r}", hint=f"the transports are: {', '.join(TRANSPORTS)}"
        )
    return TRANSPORTS[name]
