"""Serves the images of scenarios over HTTP on this machine."""

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
class ImageHost:
    """A web server that serves images.

    Attributes:
        port: the port on this machine.
        images: the type and the bytes of each image, by path.
        requested: the paths that were requested.
    """

    port: int
    images: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)

    def address(self, path: str) -> str:
        """The URL of a path."""
        return f"http://{HOST}:{self.port}{path}"

    def add(self, data_url: str) -> str:
        """Serves the image of a data URL; returns its address."""
        match = DATA_URL.fullmatch(data_url)
        kind, data = (match["type"], match["data"]) if match else ("application/octet-stream", "")
        path = f"/{len(self.images) + 1}.{kind.rpartition('/')[2]}"
        self.images[path] = kind, base64.b64decode(data)
        return self.address(path)


@contextmanager
def image_host() -> Iterator[ImageHost]:
    """Runs an image host, which answers 404 for unknown paths."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host.requested.append(self.path)
            if self.path not in host.images:
                self.send_error(404)
                return
            kind, data = host.images[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        host = ImageHost(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield host
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def with_addresses(scenario: Scenario) -> Iterator[Scenario]:
    """Serves the images that a scenario marks as hosted; yields the scenario with their addresses."""
    if not any(part.hosted for turn in scenario.turns for part in turn.user):
        yield scenario
        return
    with image_host() as host:
        turns = (
            turn.model_copy(update={"user": tuple(_addressed(part, host) for part in turn.user)})
            for turn in scenario.turns
        )
        yield scenario.model_copy(update={"turns": tuple(turns)})


def _addressed(part: ContentPart, host: ImageHost) -> ContentPart:
    return ContentPart(image=host.add(part.image)) if part.hosted and part.image else part
