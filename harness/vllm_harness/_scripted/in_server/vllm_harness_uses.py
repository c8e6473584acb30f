"""The state of a script while vLLM generates: a folder for each use, with a small file for each generation.

The logits processor (engine process) writes these files, and the middleware (API server process) reads them.
Runs inside the server and imports nothing from the harness outside this folder.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import vllm_harness_names as names

REFUSED = ".refused"
REFUSED_USES = "refused-uses"
KEPT_FILE = ".kept-"  # hidden, so that `read_statuses` ignores it

# keys of vllm_xargs
USE = "harness_use"  # the id of this use of a script
IDS = "harness_ids"  # the token ids of all its takes, concatenated
LENGTHS = "harness_lengths"  # the number of tokens in each take
BY_CHOICE = "harness_by_choice"  # 1: a take for each choice (n > 1), 0: a take for each turn
SEED = "harness_seed"  # the request's seed; a choice's own seed is this plus the choice's index
NO_SCRIPT = "harness_no_script"  # why no script matches this request
KEEP_PROMPT = "harness_keep_prompt"  # 1: keep the prompt and sampling parameters of each generation
ARGS = frozenset({USE, IDS, LENGTHS, BY_CHOICE, SEED, NO_SCRIPT, KEEP_PROMPT})

_USE = re.compile(r"\d+-\d+")


def is_use(use: object) -> bool:
    """Whether a value can be the id of a use; clients may send any value in `vllm_xargs`."""
    return isinstance(use, str) and _USE.fullmatch(use) is not None


def folder(use: str) -> Path:
    """The folder of a use; each use has its own, so that reading stays fast after many uses."""
    return Path(os.environ[names.SCRIPT_DIR]) / "uses" / use


def forget(use: str) -> None:
    """Removes the state of a use that is no longer needed."""
    shutil.rmtree(folder(use), ignore_errors=True)


class GenerationProgress:
    """Reports the progress of a generation from the engine.

    A file contains a line with the script's length and then a byte for each generated token, so that
    reporting a token takes almost no time. A second file, renamed once it is complete, reports a refusal.

    Args:
        use, take, choice: the use's id and the indices of the take and the choice.
        length: the number of tokens in its script.
    """

    def __init__(self, use: str, take: int, choice: int, length: int) -> None:
        self._path = folder(use) / f"{take}.{choice}"
        self._head = json.dumps({"length": length}).encode() + b"\n"
        self._file: io.FileIO | None = None

    def generated(self, position: int) -> None:
        """Reports a generated token."""
        if self._file is None:
            self._file = self._begin()
        os.pwrite(self._file.fileno(), b".", len(self._head) + position)

    def refused(self, status: dict[str, Any]) -> None:
        """Reports a refused token."""
        fresh = self._fresh()
        fresh.write_text(json.dumps({"state": "refused", **status}))
        fresh.replace(self._path.with_name(f"{self._path.name}{REFUSED}"))
        with _refused_uses().open("ab") as refused:
            refused.write(f"{self._path.parent.name}\n".encode())

    def _begin(self) -> io.FileIO:
        fresh = self._fresh()
        file = io.FileIO(fresh, "w")
        file.write(self._head)
        fresh.replace(self._path)
        return file

    def _fresh(self) -> Path:
        """A temporary path, so that no reader sees an incomplete file before it gets its final name."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._path.with_name(f".{self._path.name}")


class RefusedUses:
    """Reads the ids of refused uses from the one file to which the engines append them.

    So a check needs a single read, however many requests are running.
    """

    def __init__(self) -> None:
        self._file: io.FileIO | None = None
        self._uses: set[str] = set()
        self._half = b""

    def now(self) -> set[str]:
        """The ids of all uses refused so far."""
        if self._file is None:
            self._file = io.FileIO(os.open(_refused_uses(), os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if further := self._file.read():
            *whole, self._half = (self._half + further).split(b"\n")
            self._uses.update(use.decode() for use in whole)
        return self._uses


def _refused_uses() -> Path:
    return Path(os.environ[names.SCRIPT_DIR]) / REFUSED_USES


def read_statuses(use: str) -> list[dict[str, Any]]:
    """The statuses of all generations of a use, in order."""
    files = {name.removesuffix(REFUSED) for name in _names(use)}
    generations = sorted(tuple(map(int, name.split("."))) for name in files)
    return [
        {"take": take, "choice": choice, **_status(use, f"{take}.{choice}")} for take, choice in generations
    ]


def read_kept(use: str) -> list[dict[str, Any]]:
    """The kept `prompt` and `sampling` parameters of each generation of a use, in order."""
    generations = sorted(
        tuple(map(int, path.name.removeprefix(KEPT_FILE).split(".")))
        for path in folder(use).glob(f"{KEPT_FILE}*")
    )
    return [json.loads(_kept(use, *generation).read_text()) for generation in generations]


def read_prompt(use: str, take: int, choice: int) -> list[int]:
    """The kept prompt of a generation; empty if it was not kept."""
    try:
        ids: list[int] = json.loads(_kept(use, take, choice).read_text())["prompt"]
    except FileNotFoundError:
        return []
    return ids


def keep(use: str, take: int, choice: int, prompt: list[int], sampling: dict[str, Any]) -> None:
    """Keeps the token ids of a generation's prompt, and its sampling parameters."""
    path = _kept(use, take, choice)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"prompt": [int(token) for token in prompt], "sampling": sampling}
    path.write_text(json.dumps(kept, default=str))


def _kept(use: str, take: int, choice: int) -> Path:
    return folder(use) / f"{KEPT_FILE}{take}.{choice}"


def refusal(use: str) -> dict[str, Any] | None:
    """The status of the first refused generation of a use; None if there is none."""
    return next((status for status in read_statuses(use) if status["state"] == "refused"), None)


def _names(use: str) -> list[str]:
    """The names of a use's files, without hidden files."""
    try:
        with os.scandir(folder(use)) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []


def _status(use: str, name: str) -> dict[str, Any]:
    try:
        refused: dict[str, Any] = json.loads((folder(use) / f"{name}{REFUSED}").read_text())
    except FileNotFoundError:
        head, _, tokens = (folder(use) / name).read_text().partition("\n")
        return _progress(json.loads(head)["length"], len(tokens))
    return refused


def _progress(length: int, generated: int) -> dict[str, Any]:
    # asynchronous scheduling generates one token past the end; ignoring the stop token generates more
    state = "running" if generated < length else "done" if generated <= length + 1 else "overrun"
    return {"state": state, "position": min(generated, length), "length": length}
