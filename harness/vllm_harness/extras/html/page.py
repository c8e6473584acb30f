"""Writes the page of a run, or of two runs that are compared, as one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm_harness._defects.registry import Defects, load_defects
from vllm_harness._errors import UsageError
from vllm_harness._files.folders import unusable
from vllm_harness.extras.html.contents import OUTCOMES, defect_of, index_of, read_run
from vllm_harness.extras.html.packing import Blocks, packed
from vllm_harness.extras.html.pairing import pairs

TEMPLATE = Path(__file__).with_name("page.html")
MARK = "<!-- the runs -->"
ROOM = 12 * 2**20  # characters of all details; the page stays below 15 MB


def write(runs: Sequence[Path], out: Path, *, defects: Defects | None = None, room: int = ROOM) -> Path:
    """Writes the page.

    Args:
        runs: the folder of a run, or of two runs, the earlier first.
        out: the path of the page; its folder is created if it is missing.
        defects: the known defects; by default the package's.
        room: the maximum number of packed characters of all details; beyond it, exchanges are left out, those
            of passed cases first, and the page says so.

    Returns:
        The path of the page. The same run folders give the same bytes.

    Raises:
        UsageError: a folder is not a run folder, there are not one or two, or the page cannot be written.
    """
    if len(runs) not in (1, 2):
        raise UsageError(f"a page shows one run or compares two, not {len(runs)}", hint="name one or two")
    blocks = Blocks(room)
    index = _index([Path(run) for run in runs], blocks, defects)
    data = [("index", packed(index)), *((f"block-{at}", text) for at, text in enumerate(blocks.packed))]
    scripts = "".join(f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in data)
    head, mark, tail = TEMPLATE.read_text(encoding="utf-8").partition(MARK)
    assert mark, TEMPLATE
    _put(out, head + scripts + tail)
    return out


def _index(runs: Sequence[Path], blocks: Blocks, defects: Defects | None) -> dict[str, Any]:
    contents = [read_run(run) for run in runs]
    targets = [list(run.targets.values()) for run in contents]
    partners = pairs(*targets) if len(targets) == 2 else {}
    indices = [
        index_of(run, blocks, partners if run is contents[-1] else {}) for run in reversed(contents)
    ]  # the details of the later run come first
    seen = {
        defect
        for run in contents
        for case in run.cases
        for defect in (*case.defects, *(finding.known for finding in case.findings))
        if defect
    }
    registry = (load_defects() if defects is None else defects) if seen else {}
    return {
        "outcomes": OUTCOMES,
        "runs": indices[::-1],
        "defects": {id_: defect_of(registry[id_]) for id_ in sorted(seen) if id_ in registry},
    }


def _put(out: Path, text: str) -> None:
    """Writes a file atomically."""
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise unusable(error, out, "choose another file") from error
