"""The plugin's command-line options and markers, all with the prefix `vllm`: other plugins have theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

MARKERS = (
    "vllm_gpu: the server runs on CUDA (set by the plugin)",
    "vllm_scripted: only on the scripted lane",
    "vllm_live: only on the live lane",
    "vllm_greedy: holds for greedy choice only; --vllm-repeat runs it once, as it is",
    "vllm_harmony: only for model entries that speak Harmony (gpt-oss)",
    "vllm_standard: only for model entries that do not speak Harmony",
    "vllm_model(*names): only for these model entries",
    "vllm_needs(*names): only for entries with these capabilities, servers with these APIs (chat, ...)",
    "vllm_servers(n): uses n servers at once (default: the target's), whose memory is set aside before it",
    "vllm_alone: no other test may run meanwhile (--vllm-at-once)",
    "vllm_long: takes or waits for seconds, so that it begins before others (--vllm-at-once)",
    "vllm_slow: takes minutes; run with --vllm-slow",
    "vllm_known_defect(id, *, models=()): shows a defect of the registry, or of --vllm-defects",
)

_FLAG: dict[str, Any] = {"action": "store_true"}
_MANY: dict[str, Any] = {"action": "append", "default": []}
_FILE: dict[str, Any] = {"type": Path, "metavar": "FILE"}
_FOLDER: dict[str, Any] = {"type": Path, "metavar": "DIR"}

OPTIONS: dict[str, dict[str, Any]] = {
    "--vllm-model": {**_MANY, "help": "model entry or hub id; may be repeated"},
    "--vllm-lane": {
        "choices": ["live", "scripted"],
        "help": "the only lane; default: all that this machine can run",
    },
    "--vllm-spec": {
        "metavar": "SPEC",
        "help": "server environment: 0.32.0, 0.33.0@0.32.0, tree:PATH, installed",
    },
    "--vllm-python": {"metavar": "PATH", "help": "the same as --vllm-spec installed:PATH"},
    "--vllm-device": {"choices": ["cpu", "cuda"], "help": "device of the server environment"},
    "--vllm-frontend": {"choices": ["python", "rust"], "default": "python", "help": "vLLM's HTTP front end"},
    "--vllm-models-file": {**_FILE, "help": "another models.yaml (ini option: vllm_models_file)"},
    "--vllm-defects": {**_FOLDER, "help": "a folder with an entry ID.yaml for each further known defect"},
    "--vllm-server-arg": {
        **_MANY,
        "metavar": "FLAG",
        "help": "a further flag of `vllm serve`, such as --vllm-server-arg=--dtype=float16; may be repeated",
    },
    "--vllm-server-url": {"metavar": "URL", "help": "test a server that runs already, attached"},
    "--vllm-server-version": {
        "metavar": "VERSION",
        "help": "the vLLM behind that server, where it does not tell it: known defects of that version apply",
    },
    "--vllm-books-url": {
        "metavar": "URL",
        "help": "the scripted server behind that server: it is told what the model answers",
    },
    "--vllm-gateway": {
        "metavar": "NAME==VERSION",
        "help": "the gateway that --vllm-server-url is, as litellm==1.106.12: what is known of it applies",
    },
    "--vllm-server-model": {"metavar": "NAME", "help": "the model's name on that server"},
    "--vllm-api-key-env": {"metavar": "NAME", "help": "variable that holds that server's API key"},
    "--vllm-cold-start": {**_FLAG, "help": "start servers without the fork server"},
    "--vllm-keep-servers": {**_FLAG, "help": "leave servers running for a later run"},
    "--vllm-at-once": {
        "type": int,
        "default": 0,
        "metavar": "N",
        "help": "scripted lane: N forks share a target's server, beside tests with servers of their own; "
        "without pytest-xdist's -n, whose workers start servers of their own",
    },
    "--vllm-slow": {**_FLAG, "help": "run tests marked vllm_slow as well"},
    "--vllm-repeat": {
        "type": int,
        "default": 1,
        "metavar": "K",
        "help": "run each live test with K seeds: pass@k, pass^k",
    },
    "--vllm-quality-reference": {**_FILE, "help": "compare decisions to call tools with this run's"},
    "--vllm-write-quality-reference": {**_FILE, "help": "keep this run's decisions to call tools"},
    "--vllm-report": {
        "metavar": "DIR",
        "help": "keep the run in a folder, for `vllm-harness report DIR`; `auto`: in that of the logs",
    },
    "--vllm-report-all": {**_FLAG, "help": "with it: the exchanges of the tests that passed as well"},
    "--vllm-record-tokens": {**_FOLDER, "help": "keep the token ids of every generation"},
    "--vllm-replay-tokens": {**_FOLDER, "help": "script what was recorded live, on the scripted lane"},
}


MODELS_FILE_INI = "vllm_models_file"
INI = {
    MODELS_FILE_INI: "another models.yaml, relative to pytest's rootdir; --vllm-models-file comes before it"
}


def models_file(config: pytest.Config) -> Path | None:
    """The file of --vllm-models-file, else that of the ini option, relative to pytest's rootdir."""
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
    for name, text in INI.items():
        parser.addini(name, text, default="")


def given(config: pytest.Config) -> dict[str, str]:
    """The options that have another value than their default, without their prefix."""
    values = {name: getattr(config.option, dest(name)) for name in OPTIONS}
    return {
        name.removeprefix("--vllm-"): " ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
        if value and value != OPTIONS[name].get("default")
    }
