"""Images of scenarios: as data URLs, and at an address of this machine."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from vllm_harness._exchange.building import DATA_URL, ContentPart
from vllm_harness._scenarios.format import Scenario

HOST = "127.0.0.1"


@dataclass
class PictureHost:
    """A web host of pictures, on this machine.

    Attributes:
        pictures: type and bytes, by path.
        asked: the paths that were asked for.
    """

    port: int
    pictures: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def address(self, path: str) -> str:
        """The URL of a path."""
        return f"http://{HOST}:{self.port}{path}"

    def take(self, data_url: str) -> str:
        """Serves the image of a data URL; its address."""
        found = DATA_URL.fullmatch(data_url)
        kind, data = (found["type"], found["data"]) if found else ("application/octet-stream", "")
        path = f"/{len(self.pictures) + 1}.{kind.rpartition('/')[2]}"
        self.pictures[path] = kind, base64.b64decode(data)
        return self.address(path)


@contextmanager
def picture_host() -> Iterator[PictureHost]:
    """A host that runs; a path that it does not have is answered with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.asked.append(self.path)
            if self.path not in host.pictures:
                self.send_error(404)
                return
            kind, data = host.pictures[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        host = PictureHost(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def with_addresses(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario, with addresses of this machine for its hosted images."""
    if not any(part.hosted for turn in scenario.turns for part in turn.user):
        yield scenario
        return
    with picture_host() as host:
        turns = (
            turn.model_copy(update={"user": tuple(_addressed(part, host) for part in turn.user)})
            for turn in scenario.turns
        )
        yield scenario.model_copy(update={"turns": tuple(turns)})


def _addressed(part: ContentPart, host: PictureHost) -> ContentPart:
    return ContentPart(image=host.take(part.image)) if part.hosted and part.image else part
