"""`vllm-harness site`: builds the compatibility site for a static host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vllm_harness.cli.regression_options import notes
from vllm_harness.extras.site.build import build, check_out, read_runs, site_of


def site(
    out: Annotated[Path, typer.Argument(help="The folder to write; an earlier site there is replaced.")],
    input: list[str],
    url: str = "",
) -> None:
    """Build the compatibility site and manual: what works with which release, and what to do otherwise.

    Each --input is a run of `regression` or of `repro`; if two have results
    for the same cell, the later one counts. Feeds and canonical links need
    --url. The same runs and the same registry produce the same bytes.
    """
    started = time.monotonic()
    check_out(out)
    cells, verdicts = read_runs(input)
    notes.print(f"{len(cells)} cells and {len(verdicts)} verdicts from {len(input)} runs")
    built = build(site_of(cells, verdicts), out, url, notes.print)
    seconds = time.monotonic() - started
    print(f"{built.pages} pages, {built.files} files, {built.size / 1e6:.1f} MB in {seconds:.0f} s: {out}")
