"""Checking model entries against the names that a vLLM knows, and the command for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._configuration.model_entries import ModelEntry, load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._server.model_check import (
    NamesError,
    Unknown,
    VllmNames,
    names_of,
    stand_in_problems,
    unknown_names,
)
from vllm_harness.cli import models
from vllm_harness.cli.main import app

KNOWN = VllmNames(
    tool_parsers=frozenset({"hermes", "openai"}),
    reasoning_parsers=frozenset({"qwen3"}),
    flags=frozenset(
        {
            *("--enable-auto-tool-choice", "--tool-call-parser", "--reasoning-parser", "--chat-template"),
            *("--load-format", "--enforce-eager", "--max-model-len", "--max-num-seqs", "--override"),
            "--num-gpu-blocks-override",
        }
    ),
    variables=frozenset({"VLLM_LOGGING_LEVEL"}),
    architectures=frozenset({"LlamaForCausalLM"}),
)
ENTRY = {
    "name": "tiny",
    "hub": {"id": "acme/Tiny-1B"},
    "family": "tiny",
    "dialect": "hermes",
    "tool_call_parser": "hermes",
    "reasoning_parser": "qwen3",
    "chat_template": "smollm2-hermes.jinja",
    "args": ["--max_model_len=8", "--override.a.b", "1"],
    "env": {"VLLM_LOGGING_LEVEL": "INFO", "OMP_NUM_THREADS": "1"},
    "lanes": ["live", "scripted"],
    "stand_in": {
        "config": {"architectures": ["LlamaForCausalLM"]},
        "generation_config": {},
        "tokenizer": "t",
        "stop": "s",
    },
}


def unknown(**changes: object) -> list[Unknown]:
    return unknown_names([ModelEntry.model_validate({**ENTRY, **changes})], KNOWN)


def an_environment(tmp_path: Path, prints: str) -> Environment:
    """An environment whose interpreter prints the given text and fails."""
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nprint({prints!r})\nsys.exit('boom: no vllm')\n")
    python.chmod(0o755)
    return Environment("installed", python, "3.11.0", "0.32.0", "cpu", None)


def test_an_entry_with_known_names() -> None:
    assert unknown() == []


@pytest.mark.parametrize(
    ("key", "changes", "name", "near"),
    [
        ("tool_call_parser", {"tool_call_parser": "hermess"}, "hermess", ("hermes",)),
        ("reasoning_parser", {"reasoning_parser": "qwen"}, "qwen", ("qwen3",)),
        ("chat_template", {"chat_template": "smollm2.jinja"}, "smollm2.jinja", ("smollm2-hermes.jinja",)),
        ("dialect", {"dialect": "harmny"}, "harmny", ("harmony",)),
        ("args", {"live": {"args": ["--enforce-eagre"]}}, "--enforce-eagre", ("--enforce-eager",)),
        ("env", {"cpu": {"env": {"VLLM_LOGING_LEVEL": "1"}}}, "VLLM_LOGING_LEVEL", ("VLLM_LOGGING_LEVEL",)),
    ],
)
def test_an_unknown_name_brings_the_nearest(
    key: str, changes: dict[str, object], name: str, near: tuple[str, ...]
) -> None:
    (problem,) = unknown(**changes)
    assert (problem.model, problem.key, problem.name) == ("tiny", key, name)
    assert problem.near[: len(near)] == near


def test_an_architecture_of_a_stand_in_is_checked() -> None:
    stand_in = {**ENTRY["stand_in"], "config": {"architectures": ["LlamaForCasualLM"]}}  # type: ignore[dict-item]
    (problem,) = unknown(stand_in=stand_in)
    assert (problem.key, problem.near) == ("stand_in.config.architectures", ("LlamaForCausalLM",))


def test_names_come_from_the_environments_interpreter(tmp_path: Path) -> None:
    names = {**{key: sorted(value) for key, value in KNOWN.model_dump().items()}}
    assert names_of(an_environment(tmp_path, json.dumps(names))) == KNOWN


def test_an_interpreter_without_names_is_reported_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(NamesError, match="boom: no vllm") as raised:
        names_of(an_environment(tmp_path, "hello"))
    assert raised.value.exit_code == 3


def test_the_command_shows_unknown_names_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "resolve", lambda spec: an_environment(tmp_path, ""))
    monkeypatch.setattr(models, "names_of", lambda *_: KNOWN)
    monkeypatch.setattr(models, "stand_in_problems", lambda *_: [])
    result = CliRunner().invoke(app, ["models", "check"], env={"COLUMNS": "40"})
    assert result.exit_code == 1
    assert "deepseek_v32" in result.stdout


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"tokenizer": "no-such-asset"}, "no asset no-such-asset"),
        ({"stop": "<|im_end|>"}, "has no token '<|im_end|>'"),
        ({"tokens": {7: "<|call|>"}}, "no added token with id 7"),
        ({"assets": {"ENCODINGS": "no-such-asset"}}, "no asset no-such-asset"),
    ],
)
def test_a_stand_in_that_cannot_be_made(
    changes: dict[str, object], problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_HARNESS_CACHE", str(tmp_path))
    tokenizer = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "<|end|>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    stand_in = {**ENTRY["stand_in"], "tokenizer": str(tmp_path), "stop": "<|end|>", **changes}  # type: ignore[dict-item]
    entry = ModelEntry.model_validate({**ENTRY, "stand_in": stand_in})
    errors = [str(error) for _, error in stand_in_problems([entry], lambda _: None)]
    assert len(errors) == bool(problem)
    assert all(str(problem) in error for error in errors)


def test_the_list_as_json_has_every_entry() -> None:
    listed = json.loads(CliRunner().invoke(app, ["models", "--json"]).stdout)
    assert [entry["name"] for entry in listed] == [entry.name for entry in load_models()]
    assert listed[0]["capabilities"] == sorted(listed[0]["capabilities"])


def test_the_list_has_whole_hub_ids() -> None:
    listed = CliRunner().invoke(app, ["models"], env={"COLUMNS": "40"}).stdout
    for entry, line in zip(load_models(), listed.splitlines()[1:], strict=True):
        assert {entry.name, entry.hub.id} <= set(line.split())
