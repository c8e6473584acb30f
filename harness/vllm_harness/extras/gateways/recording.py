"""Recordings: the answers of one side, in a folder with an index and the bytes of each answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from vllm_harness._errors import UsageError
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._files.strict import StrictModel
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness.extras.gateways.answers import ReceivedRequest, SideExchange

INDEX = "recording.json"
MAX_BYTES = 256 * 1024 * 1024


class _Recorded(StrictModel):
    """An exchange; `file` contains the answer's bytes, `arrivals` the time and the length of each chunk."""

    name: str
    api: Api
    request: Json
    status: int
    headers: dict[str, str]
    file: str
    arrivals: tuple[tuple[float, int], ...]
    broken: str = ""
    left: bool = False
    seen: tuple[ReceivedRequest, ...] | None = None


class GatewayRecording(StrictModel):
    """The index of a recording.

    Attributes:
        url: the address of the side.
        model: the requested model.
        scripted: whether the server behind it was scripted.
        exchanges: the exchanges, in order.
    """

    url: str
    model: str
    scripted: bool
    exchanges: tuple[_Recorded, ...] = Field(default=())


def write(folder: Path, url: str, model: str, scripted: bool, exchanges: Iterable[SideExchange]) -> None:
    """Writes a recording, which replaces an earlier one in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    recorded = tuple(_written(folder, exchange) for exchange in exchanges)
    index = GatewayRecording(url=url, model=model, scripted=scripted, exchanges=recorded)
    (folder / INDEX).write_text(index.model_dump_json(indent=1))


def _written(folder: Path, exchange: SideExchange) -> _Recorded:
    file = exchange.name.replace("/", "-") + (".sse" if exchange.streamed else ".json")
    (folder / file).write_bytes(exchange.content)
    return _Recorded(
        name=exchange.name,
        api=exchange.api or "responses",
        request=dict(exchange.request),
        status=exchange.status,
        headers=dict(exchange.headers),
        file=file,
        arrivals=tuple((at, len(chunk)) for at, chunk in exchange.chunks),
        broken=exchange.broken,
        left=exchange.left,
        seen=exchange.seen,
    )


def read(folder: Path) -> tuple[GatewayRecording, dict[str, SideExchange]]:
    """Reads the index of a recording, and its exchanges by name.

    Raises:
        UsageError: the folder has no recording, or an invalid one.
    """
    path = folder / INDEX
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path} is larger than {MAX_BYTES} bytes")
        index = GatewayRecording.model_validate_json(path.read_bytes())
        exchanges = {exchange.name: _read(folder, exchange) for exchange in index.exchanges}
    except OSError as error:
        raise UsageError(
            f"{folder} is not a recording: {error}",
            hint="make one: vllm-harness gateway record URL --output FOLDER",
        ) from error
    except ValidationError as error:
        raise UsageError(f"{path}: {error.errors()[0]['msg']} at {error.errors()[0]['loc']}") from error
    return index, exchanges


def _read(folder: Path, recorded: _Recorded) -> SideExchange:
    if Path(recorded.file).name != recorded.file:
        raise UsageError(f"{folder / INDEX}: {recorded.file!r} is not the name of a file in this folder")
    data = (folder / recorded.file).read_bytes()
    exchange = SideExchange(
        recorded.request,
        path=API_PATHS[recorded.api],
        left=recorded.left,
        name=recorded.name,
        seen=recorded.seen,
    )
    return exchange.answered(
        recorded.status, recorded.headers, _split(data, recorded.arrivals), recorded.broken
    )


def _split(data: bytes, arrivals: Iterable[tuple[float, int]]) -> Iterator[tuple[float, bytes]]:
    at = 0
    for seconds, length in arrivals:
        yield seconds, data[at : at + length]
        at += length
