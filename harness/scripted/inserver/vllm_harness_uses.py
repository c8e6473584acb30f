"""What becomes of a script while vLLM generates: a folder a use of it, in it a small file a generation.

The logits processor (engine process) writes it, the middleware (API server process) reads it. Runs inside the
server, so it imports nothing of the harness.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

FOLDER = "VH_SCRIPT_DIR"

# keys of vllm_xargs
USE = "harness_use"  # id of this use of a script
IDS = "harness_ids"  # the token ids of all its takes, one after the other
LENGTHS = "harness_lengths"  # tokens of each take
BY_CHOICE = "harness_by_choice"  # 1: a take for each choice (n > 1); 0: a take for each turn
SEED = "harness_seed"  # the request's seed, so that choice k is told by its seed
NO_SCRIPT = "harness_no_script"  # why no script matches this request


_USE = re.compile(r"\d+-\d+")


def is_use(use: object) -> bool:
    """Whether something can be an id of ours; clients may send what they like in `vllm_xargs`."""
    return isinstance(use, str) and _USE.fullmatch(use) is not None


def folder(use: str) -> Path:
    """The folder of one use; looking into it takes as long on the server's first request as on its last."""
    path = Path(os.environ[FOLDER]) / "uses" / use
    path.mkdir(parents=True, exist_ok=True)
    return path


def status_path(use: str, take: int, choice: int) -> Path:
    """File of one generation of a use."""
    return folder(use) / f"{take}.{choice}"


def write_status(path: Path, status: dict[str, Any]) -> None:
    """Replaces the status of one generation at once, so that nobody reads half of it."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(status))
    fresh.replace(path)


def read_statuses(use: str) -> list[dict[str, Any]]:
    """The statuses of all generations of a use, in order."""
    generations = sorted(
        tuple(map(int, path.name.split("."))) for path in folder(use).iterdir() if path.name[0] != "."
    )
    return [
        {"take": take, "choice": choice, **json.loads(status_path(use, take, choice).read_text())}
        for take, choice in generations
    ]


def refusal(use: str) -> dict[str, Any] | None:
    """The first refused generation of a use."""
    return next((status for status in read_statuses(use) if status.get("state") == "refused"), None)
