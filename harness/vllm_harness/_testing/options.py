"""The plugin's command-line options and markers, all with the prefix `vllm`.

Options of the `vllm-harness` command have the same names here, after the prefix `--vllm-`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

MARKERS = (
    "vllm_gpu: the server runs on CUDA (set by the plugin)",
    "vllm_scripted: only on the scripted lane",
    "vllm_live: only on the live lane",
    "vllm_greedy: holds for greedy sampling only; --vllm-repeat runs it once, without a seed",
    "vllm_harmony: only for model entries that use the Harmony format (gpt-oss)",
    "vllm_standard: only for model entries that do not use the Harmony format",
    "vllm_model(*names): only for these model entries",
    "vllm_needs(*names): only for model entries with these capabilities, servers with these APIs (chat, ...)",
    "vllm_servers(n): uses n servers at once (default: the target's); their memory is reserved in advance",
    "vllm_alone: no other test may run at the same time (--vllm-at-once)",
    "vllm_long: takes several seconds, so it starts before other tests (--vllm-at-once)",
    "vllm_slow: takes minutes; run with --vllm-slow",
    "vllm_known_defect(id, *, models=()): shows a known defect from the registry or from --vllm-folder",
)

_FLAG: dict[str, Any] = {"action": "store_true"}
_MANY: dict[str, Any] = {"action": "append", "default": []}
_FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
_FOLDER: dict[str, Any] = {"type": Path, "metavar": "DIR"}

OPTIONS: dict[str, dict[str, Any]] = {
    "--vllm-model": {**_MANY, "help": "A model entry or a hub id; repeatable."},
    "--vllm-lane": {
        "choices": ["live", "scripted"],
        "help": "live (real weights) or scripted (stand-in); by default all that this machine can run.",
    },
    "--vllm": {
        "metavar": "VLLM",
        "help": "0.32.0, 0.33.0@0.32.0, tree:PATH@0.32.0 or installed[:PYTHON].",
    },
    "--vllm-python": {"metavar": "PYTHON", "help": "The same as --vllm installed:PYTHON."},
    "--vllm-device": {"choices": ["cpu", "cuda"], "help": "cpu or cuda; by default what this machine has."},
    "--vllm-frontend": {
        "choices": ["python", "rust"],
        "default": "python",
        "help": "python or rust; by default python.",
    },
    "--vllm-models-file": {**_FILE, "help": "Another models.yaml (ini key: vllm_models_file)."},
    "--vllm-folder": {**_FOLDER, "help": "A folder with further entries, ID.yaml each (known defects)."},
    "--vllm-server-arg": {
        **_MANY,
        "metavar": "FLAG",
        "help": "A further flag of `vllm serve`, such as --vllm-server-arg=--dtype=float16; repeatable.",
    },
    "--vllm-server-url": {"metavar": "URL", "help": "Use a server that is already running."},
    "--vllm-server-version": {
        "metavar": "VERSION",
        "help": "The version of that server, if it reports none; its known defects apply.",
    },
    "--vllm-books-url": {"metavar": "URL", "help": "The scripted server behind that server."},
    "--vllm-product": {
        "metavar": "NAME==VERSION",
        "help": "A gateway, such as litellm==1.106.12, at --vllm-server-url; its known defects apply.",
    },
    "--vllm-server-model": {"metavar": "NAME", "help": "The model's name on that server."},
    "--vllm-api-key-env": {"metavar": "NAME", "help": "Variable with the API key of that server."},
    "--vllm-cold-start": {**_FLAG, "help": "Start without the fork server."},
    "--vllm-keep-servers": {**_FLAG, "help": "Leave servers running for a later run."},
    "--vllm-at-once": {
        "type": int,
        "default": 0,
        "metavar": "N",
        "help": "Forks that share a server's tests; 0: none. Only on the scripted lane, and without "
        "pytest-xdist's -n, whose workers start servers of their own.",
    },
    "--vllm-slow": {**_FLAG, "help": "Run tests marked vllm_slow as well."},
    "--vllm-repeat": {
        "type": int,
        "default": 1,
        "metavar": "K",
        "help": "Run each live test K times: pass@k, pass^k.",
    },
    "--vllm-quality-reference": {**_FILE, "help": "Compare decisions to call tools with a stored run's."},
    "--vllm-write-quality-reference": {**_FILE, "help": "Write this run's decisions to call tools."},
    "--vllm-output": {
        "metavar": "DIR",
        "help": "The file or folder to write: the run folder (`vllm-harness report`); `auto`: with the logs.",
    },
    "--vllm-report-all": {**_FLAG, "help": "Keep the exchanges of tests that passed too."},
    "--vllm-record-tokens": {**_FOLDER, "help": "Keep the token ids of every generation."},
    "--vllm-replay-tokens": {**_FOLDER, "help": "Replay a live run's tokens on the scripted lane."},
}
RENAMED = {
    "--vllm-spec": "--vllm",
    "--vllm-defects": "--vllm-folder",
    "--vllm-gateway": "--vllm-product",
    "--vllm-report": "--vllm-output",
}
"""The new option names by those of version 0.1, which work until 0.2."""

MODELS_FILE_INI = "vllm_models_file"
INI = {
    MODELS_FILE_INI: "another models.yaml, relative to pytest's rootdir; --vllm-models-file takes precedence"
}


class _OldName(argparse.Action):
    """Stores the value of an old name under the new one, and remembers the old name."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, value: object, name: object = None
    ) -> None:
        setattr(namespace, self.dest, value)
        namespace.vllm_old_names = [*getattr(namespace, "vllm_old_names", ()), str(name)]


def models_file(config: pytest.Config) -> Path | None:
    """The file from --vllm-models-file, otherwise from the ini key, relative to pytest's rootdir."""
    named = config.getini(MODELS_FILE_INI)
    return config.option.vllm_models_file or (config.rootpath / named if named else None)


def dest(option: str) -> str:
    """The name that an option's value has in `config.option`."""
    return option.removeprefix("--").replace("-", "_")


def add(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("vllm-harness", "real vLLM servers")
    for name, settings in OPTIONS.items():
        group.addoption(name, dest=dest(name), **settings)
    for old, new in RENAMED.items():
        settings = {key: value for key, value in OPTIONS[new].items() if key in ("type", "metavar")}
        group.addoption(
            old,
            dest=dest(new),
            action=_OldName,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
            **settings,
        )
    for name, text in INI.items():
        parser.addini(name, text, default="")


def old_names(config: pytest.Config) -> list[str]:
    """A line for each renamed option that was given under its old name."""
    given = dict.fromkeys(getattr(config.option, "vllm_old_names", ()))
    return [f"`{name}` is now `{RENAMED[name]}`; the old name will be removed in 0.2" for name in given]


def given(config: pytest.Config) -> dict[str, str]:
    """The options whose values differ from the defaults, by their names in `vllm-harness`."""
    values = {name: getattr(config.option, dest(name)) for name in OPTIONS}
    return {
        name.removeprefix("--").removeprefix("vllm-"): (
            " ".join(map(str, value)) if isinstance(value, list) else str(value)
        )
        for name, value in values.items()
        if value and value != OPTIONS[name].get("default")
    }
