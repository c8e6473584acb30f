"""Measures the page of a run with many cases, in Chromium.

Each time is that from the input until the frame after it was drawn, as the page's own clock has it. Beside it
stands what the page's thread used of a core: that is how long it takes on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

from tests.extras.html.generated import write_run
from vllm_harness.extras.html.page import write

OPENED = """() => new Promise((done) => {
  const look = () => document.querySelector('.case') ? done(performance.now()) : requestAnimationFrame(look);
  look();
})"""
TYPE = """() => new Promise((done) => {
  const input = document.querySelector('input[type=search]');
  const began = performance.now();
  input.value = WORDS;
  input.dispatchEvent(new Event('input', {bubbles: true}));
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""
CLICK = """() => new Promise((done) => {
  const began = performance.now();
  document.querySelector('SELECTOR').click();
  const look = () =>
    document.querySelector('WANTED') ? done(performance.now() - began) : requestAnimationFrame(look);
  requestAnimationFrame(() => setTimeout(look));
})"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=20_000)
    arguments.add_argument(
        "--recorded", type=float, default=0.02, help="share of passed cases with exchanges"
    )
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        console.print(f"writing a run of {options.cases:,} cases")
        run = write_run(
            Path(folder) / "run", targets=40, cases=options.cases, failing=0.01, recorded=options.recorded
        )
        began = time.perf_counter()
        page = write([run], Path(folder) / "page.html")
        written = time.perf_counter() - began
        rows = measured(page, options.repeats)
        size = page.stat().st_size / 2**20
    console.print(f"written in {written:.1f} s")
    table = Table("what", "median", "worst", "of a core", title=f"{options.cases:,} cases, {size:.1f} MiB")
    for name, figures in rows.items():
        times, used = zip(*figures, strict=True)
        table.add_row(name, *map(_ms, (statistics.median(times), max(times), statistics.median(used))))
    console.print(table)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def measured(path: Path, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each thing that a person does, and seconds of a core."""
    found: dict[str, list[tuple[float, float]]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(repeats):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(f"file://{path}", wait_until="commit")
            before = 0.0
            for name, script in _steps().items():
                seconds = float(page.evaluate(script)) / 1000
                used = _used(session)
                found.setdefault(name, []).append((seconds, used - before))
                before = used
            page.close()
        browser.close()
    return found


def _steps() -> dict[str, str]:
    def click(selector: str, wanted: str) -> str:
        return CLICK.replace("SELECTOR", selector).replace("WANTED", wanted)

    return {
        "open the page": OPENED,
        "search": TYPE.replace("WORDS", "'usage gpt-oss'"),
        "search nothing": TYPE.replace("WORDS", "''"),
        "filter by outcome": click(".chip.known", ".chip.known[aria-pressed=true]"),
        "take the filter out": click(".chip.known", ".chip.known[aria-pressed=false]"),
        "open a case": click(".case", ".event"),
    }


def _used(session: Any) -> float:
    """Seconds that the page's thread has run."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
