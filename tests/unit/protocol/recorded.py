"""The recorded exchanges which the tests run over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vllm_harness._protocol import Exchange

HERE = Path(__file__).parent / "data"
BESIDE_THE_CHECKOUT = Path(__file__).parents[4] / "shared" / "captures" / "openai"


class Recorded(NamedTuple):
    """One recorded exchange; `own_ids` unless whoever published it replaced the ids."""

    name: str
    backend: str
    exchange: Exchange
    own_ids: bool = True

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream, as JSON values."""
        return list(self.exchange.events or ())  # type: ignore[arg-type]


def recorded() -> Iterator[Recorded]:
    """All recorded exchanges there are."""
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
OPENAI = [each for each in ALL if each.backend == "openai"]
STREAMS = [each for each in OPENAI if each.exchange.events is not None]
