"""A small site with made-up results on a local web server, and Chromium to open it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.extras.html.conftest import browser
from tests.unit.extras.site.samples import HOSTILE, cell, failing, site
from vllm_harness.extras.site.build import build

__all__ = ["browser"]
CODER = {"family": "qwen3_coder", "tool_parser": "qwen3_coder"}
Open = Callable[..., Any]


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files without logging."""

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


def build_small(out: Path) -> None:
    """Builds a site about a family that loses calls in streams on 0.32.0; answers contain hostile markup."""
    selector = {"families": ["qwen3_coder"], "case": "call", "mismatches": ["call_lost"]}
    cells = (failing("0.32.0", answer=HOSTILE, **CODER), cell("0.31.0", **CODER))
    build(site(*cells, title=f"A call is lost {HOSTILE}", actual=HOSTILE, failures=[selector]), out)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    out = tmp_path_factory.mktemp("site") / "out"
    build_small(out)
    return out


@pytest.fixture
def opened(browser: Any, built: Path) -> Iterator[Open]:
    """A function that opens pages; the test fails if one logs anything or sends requests to other hosts."""
    problems: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built))) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{host.server_port}/"

        def open_page(name: str, *, width: int = 1280, theme: str = "light") -> Any:
            viewport = {"width": width, "height": 900}
            page = browser.new_page(viewport=viewport, color_scheme=theme)
            page.set_default_timeout(60_000)
            page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on(
                "request",
                lambda request: problems.extend([] if request.url.startswith(url) else [request.url]),
            )
            page.goto(f"{url}{name}")
            return page

        yield open_page
        for context in browser.contexts:
            context.close()
        host.shutdown()
    assert not problems
