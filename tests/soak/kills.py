"""Kills a process of a command, looks at what is left, and runs the command again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import asdict
from typing import Any

from tests.soak.commands import COMMANDS, CommandFails, Running, running, victims
from tests.soak.log import TrialResult
from tests.soak.place import ROOT, Place
from tests.soak.trials import FATAL, Trial

OUTPUT_KEPT = 4000
LAST_S = 1.0
"""The end of a command, whose lines of output come too late for a kill."""


class Kills:
    """The trials of a soak.

    Args:
        place: where the commands run.
        busy: how many processes keep the cores busy meanwhile.
    """

    def __init__(self, place: Place, busy: int) -> None:
        self._place = place
        self._busy = busy
        self._usual: dict[str, tuple[float, int]] = {}
        self._commit = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    def try_once(self, trial: Trial) -> TrialResult:
        """Runs a trial.

        Raises:
            CommandFails: the command fails without a kill.
        """
        if trial.command not in self._usual:
            self._measure(trial.command)
        self._place.begin()
        at, run = time.strftime("%Y-%m-%dT%H:%M:%S"), f"run-{trial.number}"
        with running(trial.command, self._place, run) as command:
            killed_s = self._kill(trial, command)
            code, seconds = command.end(), command.seconds()
        found: dict[str, Any] = {"killed_s": killed_s, "code": code, "seconds": round(seconds, 1)}
        found["left"] = self._place.left()
        texts = [command.text()]
        if killed_s is not None:
            with running(trial.command, self._place, run) as again:
                found["next_code"], found["next_seconds"] = again.end(), round(again.seconds(), 1)
            found["next_passed"] = COMMANDS[trial.command].passed(found["next_code"])
            found["next_left"] = self._place.left(after_next_run=True)
            texts.append(again.text())
        drawn = {key: value for key, value in asdict(trial).items() if key != "after_s"}
        result = TrialResult(at=at, commit=self._commit, busy=self._busy, **drawn, **found)
        if result.is_fault:
            result.output.extend(text[-OUTPUT_KEPT:] for text in texts)
        return result

    def _measure(self, name: str) -> None:
        """Runs a command without a kill, which also starts its fork server."""
        with running(name, self._place, "whole") as command:
            code, seconds = command.end(), command.seconds()
        if not COMMANDS[name].passed(code):
            raise CommandFails(f"{name}: exit code {code} without a kill\n{command.text()[-OUTPUT_KEPT:]}")
        with running(name, self._place, "whole again") as command:
            seen = [(0.0, 0)]
            while command.step():
                seen.append((command.seconds(), command.text().count("\n")))
            last_s = command.seconds() - LAST_S
            self._usual[name] = (
                min(seconds, command.seconds()),
                max(n for s, n in seen if s <= max(0, last_s)),
            )

    def _kill(self, trial: Trial, command: Running) -> float | None:
        """Kills the victim at the drawn moment, or once there is one; returns when, or None if never."""
        due_s, due_lines = trial.moment(*self._usual[trial.command])
        while command.seconds() < due_s or command.text().count("\n") < due_lines:
            if not command.step():
                return None
        if due_lines:
            due_s = command.seconds() + trial.after_s
        while True:
            pids = victims(trial.victim, self._place, command) if command.seconds() >= due_s else []
            if pids and command.process.poll() is None:
                try:
                    os.kill(pids[int(trial.share * len(pids))], signal.SIGKILL)
                except ProcessLookupError:
                    continue
                if trial.victim in FATAL:
                    command.expect_end()
                return round(command.seconds(), 2)
            if not command.step():
                return None
