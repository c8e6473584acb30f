"""Runs the steps of the composite action from its YAML, as a GitHub runner does, in an empty home folder."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parents[4] / "ci" / "action" / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


def steps() -> dict[str, Any]:
    """The steps of the action, by name."""
    document = yaml.safe_load(ACTION.read_text())
    return {step["name"]: step for step in document["runs"]["steps"]}


@dataclass(frozen=True)
class StepResult:
    """A step that ran: its exit code, what it printed, and its outputs."""

    code: int
    text: str
    outputs: dict[str, str]


class Runner:
    """A runner with an empty home.

    Args:
        folder: where its folders are made.
        inputs: the inputs of the action; the others have their defaults.
        environ: further environment variables.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, str], environ: Mapping[str, str]) -> None:
        document = yaml.safe_load(ACTION.read_text())
        defaults = {name: str(row["default"]) for name, row in document["inputs"].items()}
        self._values = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()}
        self._output = folder / "output"
        self.temporary = folder / "temporary"
        self.summary = folder / "summary"
        for made in (folder / "home", self.temporary):
            made.mkdir(parents=True, mode=0o700)
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_OUTPUT": str(self._output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            **environ,
        }

    def run(self, step: Mapping[str, Any], workspace: Path) -> StepResult:
        """Runs a step in a folder, with the shell and the options that GitHub uses for `shell: bash`."""
        self._output.write_text("")
        env = {name: self._evaluated(str(value)) for name, value in step["env"].items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=workspace,
            env={**self._environ, **env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        outputs = dict(line.split("=", 1) for line in self._output.read_text().splitlines())
        return StepResult(done.returncode, done.stdout, outputs)

    def _evaluated(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self._values[match[1]], text)
