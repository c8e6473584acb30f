"""Diagnoses why a server ended: from its log, its exit code, and the state of the machine.

The causes that a log shows are rows of `causes.toml`.
"""

from __future__ import annotations

import re
import resource
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from itertools import dropwhile
from pathlib import Path
from string import Formatter
from typing import Any

import psutil

from vllm_harness._environments.spec import Environment
from vllm_harness._environments.store import folder_of
from vllm_harness._machine.gpus import describe_gpus
from vllm_harness._server import errors
from vllm_harness._server.leases.ports import describe_holder

TAIL_BYTES, MOST_SHOWN = 400_000, 400
PREFIX = re.compile(r"^\((?:APIServer|EngineCore\S*|Worker\S*|VllmWorker\S*)[^)]*\)\s*")
NOTICE = re.compile(r"(?:DEBUG|INFO|WARNING)\b")
DEATH = re.compile(
    r"vllm-harness: (.+) was killed by signal (\d+)|Failed core proc.*'(\w+)': -(\d+)"
    r"|Process (\S+) \(PID: \d+\) died with exit code -(\d+)"
)
PLACE = re.compile(r'^(?:(?:\S.*\] )? *File ".*|[a-z]\w+)$')
ENGINE_FATAL = "EngineCore encountered a fatal error"
RAISED = re.compile(r"(?:^|\] )((?:\w+\.)*\w*(?:Error|Exception): .*)")
LOOKS_DECISIVE = re.compile(r"(?:^|\] |: )(?:[\w.]*(?:Error|Exception)\b|error:|CRITICAL|FATAL|Killed)")
FLAG = re.compile(r"[\"'](--[a-z][a-z-]+)|^    ([a-z]\w+): ", re.M)
FLAG_FILES = ("engine/arg_utils.py", "entrypoints/openai/cli_args.py")


@dataclass(frozen=True)
class CauseRule:
    """A row of `causes.toml`, whose head explains the keys."""

    error: str
    pattern: str
    headline: str
    advice: str
    place: bool = False


@cache
def rules() -> tuple[CauseRule, ...]:
    """The rows of `causes.toml`."""
    table = tomllib.loads(Path(__file__).with_name("causes.toml").read_text())
    return tuple(CauseRule(**row) for row in table["cause"])


@dataclass(frozen=True, kw_only=True)
class ServerEnd:
    """The end of a server that nobody asked for.

    Attributes:
        log_path: the path of the server's log.
        exit_code: the exit code of the server, negative for a signal; None if it is unknown.
        orphaned: whether the server's supervisor was killed.
        oom_kills: number of OOM kills that the kernel has counted since the server's start.
        port, environment: port and environment of the server if they are known.
    """

    log_path: Path
    exit_code: int | None
    orphaned: bool = False
    oom_kills: int = 0
    port: int | None = None
    environment: Environment | None = None

    def of_start(self) -> errors.StartupError:
        """The error for a server that ended before it was ready; its class names the cause."""
        lines = log_lines(self.log_path)
        error, ending, hint, shown = self._cause(lines, lines) or (
            errors.StartupError,
            self._code,
            "read the whole log: no rule of the harness fits",
            _decisive(lines) or _telling(lines)[-3:],
        )
        return error(f"vLLM did not start{ending}", hint=hint, lines=shown, log_path=self.log_path)

    def of_use(self, name: str) -> errors.ServerDied:
        """The error for a server that ended while it was in use."""
        lines, raised = log_lines(self.log_path), exception_of_engine(self.log_path)
        _, ending, hint, shown = self._cause(lines, raised) or (
            errors.StartupError,
            ": its engine raised an exception" if raised else self._code,
            "read the whole log; restart() starts the server again",
            raised or lines[-5:],
        )
        message = f"server {name!r} ended while in use{ending}"
        return errors.ServerDied(message, hint=hint, lines=shown, log_path=self.log_path)

    @property
    def _code(self) -> str:
        return "" if self.exit_code is None else f" (exit code {self.exit_code})"

    def _cause(self, lines: list[str], searched: list[str]) -> tuple[Any, str, str, list[str]] | None:
        """The first rule that fits a death in the log or a searched line: class, message, hint, lines."""
        death, place = self._death(lines), ""
        places: list[tuple[str, str]] = [(death, "")] if death else []
        for line in _telling(searched):
            place = line if PLACE.match(line) else place
            places.append((line, place))
        for rule in rules():
            for line, place in places:
                if match := re.search(rule.pattern, f"{place} {line}" if rule.place else line):
                    groups = [group for group in match.groups() if group] or [""]
                    start = max(0, match.start() - 40) if len(line) > MOST_SHOWN else 0
                    code, shown = self._code, [line[start:][:MOST_SHOWN]]
                    if line is death:
                        code, shown = "", _crash(lines)
                    elif rule.place and place:
                        shown = [place, line]
                    ending = f"{code}: {rule.headline.format(*groups)}"
                    return getattr(errors, rule.error), ending, self._advice(rule, groups), shown
        return None

    def _death(self, lines: Sequence[str]) -> str:
        """Says which process died first by a signal; empty if none did."""
        if self.orphaned:
            who, number = "the supervisor", "9"
        elif found := next(filter(None, map(DEATH.search, lines)), None):
            who, number = filter(None, found.groups())
        elif (code := self.exit_code or 0) < 0:
            who, number = "the API server", str(-code)
        else:
            return ""
        by = "the OOM killer" if number == "9" and self.oom_kills else f"signal {number}"
        return f"{who} was killed by {by}"

    def _advice(self, rule: CauseRule, groups: list[str]) -> str:
        facts: dict[str, Callable[[], str]] = {
            "near": partial(_nearest, groups[0], re.findall(r"[\w.-]+", groups[-1])),
            "flag": lambda: _nearest(groups[0], self._flags()),
            "reinstall": self._reinstall,
            "gpus": describe_gpus,
            "holder": lambda: describe_holder(self.port) if self.port else "another process",
            "files": lambda: str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            "shm": _shared_memory,
            "memory": lambda: f"{psutil.virtual_memory().available / 2**30:.1f} GiB",
        }
        used = {name for _, name, _, _ in Formatter().parse(rule.advice) if name in facts}
        return rule.advice.format(*groups, **{name: facts[name]() for name in used})

    def _flags(self) -> list[str]:
        """The flags of `vllm serve`, read from vLLM's source."""
        package = (self.environment and self.environment.package) or Path("/nonexistent")
        texts = [path.read_text() for path in map(package.joinpath, FLAG_FILES) if path.exists()]
        return [flag or f"--{name.replace('_', '-')}" for text in texts for flag, name in FLAG.findall(text)]

    def _reinstall(self) -> str:
        made = self.environment
        if made is None or made.kind in ("installed", "tree"):
            return "install the package of that file again, or correct the file if it is your own"
        create = f"vllm-harness env create {made.vllm_version} --device {made.device}"
        if made.kernels:
            create = f"vllm-harness env create {made.short_version}"
        return f"run `vllm-harness env remove {folder_of(made).name}`, `uv cache clean`, and `{create}`"


def _nearest(name: str, known: Sequence[str]) -> str:
    near = dict.fromkeys(get_close_matches(name, known, n=3, cutoff=0.4))
    return f"one of the nearest names: {', '.join(near)}" if near else f"one of: {', '.join(sorted(known))}"


def _shared_memory() -> str:
    usage = shutil.disk_usage("/dev/shm" if Path("/dev/shm").exists() else "/")
    return f"/dev/shm has {usage.total / 2**20:.1f} MiB, of which {usage.free / 2**20:.1f} are free"


def _telling(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not NOTICE.match(line)]


def _decisive(lines: Sequence[str]) -> list[str]:
    return [line for line in _telling(lines) if LOOKS_DECISIVE.search(line)][-3:]


def _crash(lines: Sequence[str]) -> list[str]:
    """The line that names a crash, and the source line at which the crashed thread was."""
    crash = list(dropwhile(lambda line: not line.startswith("Fatal Python error"), lines))
    thread = dropwhile(lambda line: not line.startswith("Current thread"), crash)
    return [*crash[:1], *[line for line in thread if PLACE.match(line)][:1]]


def exception_of_engine(log_path: Path) -> list[str]:
    """The line of the exception that ended the engine; empty if the log has none."""
    lines = log_lines(log_path)
    fatal = [number for number, line in enumerate(lines) if ENGINE_FATAL in line]
    after = lines[fatal[-1] + 1 :] if fatal else []
    return [match[1] for line in after if (match := RAISED.search(line))][:1]


def log_lines(log_path: Path) -> list[str]:
    """The last lines of a log, without vLLM's process prefix; empty if there is no log."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [PREFIX.sub("", line).rstrip() for line in text.splitlines() if line.strip()]
