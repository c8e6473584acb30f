"""Measures the page of a run with many cases, in Chromium.

Each figure is the time from the input until the frame after it was drawn, as the page's own clock has it.
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

from tests.report.generated import write_run
from vllm_harness.report.html.page import write

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
        rows = {"write the page": [time.perf_counter() - began], **measured(page, options.repeats)}
        size = page.stat().st_size / 2**20
    table = Table("what", "median", "worst", title=f"{options.cases:,} cases, {size:.1f} MiB")
    for name, times in rows.items():
        table.add_row(name, f"{statistics.median(times) * 1000:,.0f} ms", f"{max(times) * 1000:,.0f} ms")
    console.print(table)


def measured(path: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds of each thing that a person does."""
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(repeats):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(f"file://{path}", wait_until="commit")
            for name, script in _steps().items():
                found.setdefault(name, []).append(_time(page, script))
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


def _time(page: Any, script: str) -> float:
    return float(page.evaluate(script)) / 1000


if __name__ == "__main__":
    main()
