"""The recorded exchanges that the tests check."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vllm_harness._protocol import Exchange

HERE = Path(__file__).parent / "data"
BESIDE_THE_CHECKOUT = Path(__file__).parents[4] / "shared" / "captures" / "openai"


class Recorded(NamedTuple):
    """A recorded exchange; `own_ids` is false if the publisher of the recording replaced the ids."""

    name: str
    backend: str
    exchange: Exchange
    own_ids: bool = True

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream, as JSON values."""
        return list(self.exchange.events or ())  # type: ignore[arg-type]


def recorded() -> Iterator[Recorded]:
    """Yields all recorded exchanges."""
    folder = BESIDE_THE_CHECKOUT if BESIDE_THE_CHECKOUT.is_dir() else HERE
    for path in sorted(folder.glob("[bs]_*.json")):
        value = json.loads(path.read_text())
        exchange = Exchange(
            request=value["request"] or {},
            body=value.get("body"),
            events=value.get("events"),
            method=value["method"],
            path=value["path"],
            status=value["http_status"],
        )
        yield Recorded(path.name, value["backend"], exchange, "ids replaced" not in value["provenance"])


ALL = list(recorded())
OPENAI = [recording for recording in ALL if recording.backend == "openai"]
STREAMS = [recording for recording in OPENAI if recording.exchange.events is not None]
