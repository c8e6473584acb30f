"""Opens the page in Chromium (the system's or Playwright's); the tests are skipped if there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras.html.generated import write_run
from vllm_harness.extras.html.page import write

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
NAMES = ("chromium", "chromium-browser", "google-chrome")
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium browser."""
    api = pytest.importorskip("playwright.sync_api", reason="uv pip install --group browser")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """A function that opens a page in a new context; the test fails if a page logs to the console."""
    messages: list[str] = []
    contexts: list[Any] = []

    def open_page(
        path: Path, *, width: int = 1280, theme: str = "light", address: str = "", **options: Any
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(f"file://{path}{address}")
        page.wait_for_selector("main")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not messages


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page made from one run."""
    folder = tmp_path_factory.mktemp("one")
    return write([write_run(folder / "run", cases=160)], folder / "page.html")


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page made from two runs."""
    folder = tmp_path_factory.mktemp("two")
    before = write_run(folder / "before", cases=150, seed=3, version="0.31.0")
    return write([before, write_run(folder / "now", cases=160)], folder / "page.html")
