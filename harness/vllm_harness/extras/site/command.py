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
    run: Annotated[
        list[str],
        typer.Option(
            help="A run of `regression` or of `repro`, by name or folder; may be repeated. Of two for the "
            "same place the later counts."
        ),
    ],
    url: Annotated[str, typer.Option(help="Where the site will be, for its feeds and canonical links.")] = "",
) -> None:
    """Build the compatibility site: what works with which release, and what to do if it does not.

    The same runs and the same registry give the same bytes.
    """
    started = time.monotonic()
    check_out(out)
    cells, verdicts = read_runs(run)
    notes.print(f"{len(cells)} cells and {len(verdicts)} verdicts from {len(run)} runs")
    built = build(site_of(cells, verdicts), out, url, notes.print)
    seconds = time.monotonic() - started
    print(f"{built.pages} pages, {built.files} files, {built.size / 1e6:.1f} MB in {seconds:.0f} s: {out}")
