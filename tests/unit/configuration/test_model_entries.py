"""Reading models.yaml: the entries in a valid file, and the errors for an invalid one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_harness._configuration.model_entries import Flags, ModelEntry, ModelsFileError, load_models

MINIMAL = """\
models:
  tiny:
    hub: {id: acme/Tiny-1B}
    family: tiny
    lanes: [live]
"""

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "models.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_a_minimal_entry_has_the_defaults(write: Write) -> None:
    entry = load_models(write(MINIMAL)).get("tiny")
    assert (entry.name, entry.hub.revision, entry.hardware.devices) == ("tiny", "main", ("cuda",))
    assert entry.flags("live", "cpu") == Flags()


def test_numbers_in_args_and_env_are_text(write: Write) -> None:
    entry = load_models(write(MINIMAL + "    args: [--max-model-len, 4096]\n    env: {A: 1}\n")).get("tiny")
    assert entry.flags("live", "cuda") == Flags(args=("--max-model-len", "4096"), env={"A": "1"})


def test_flags_of_parsers_entry_lane_and_device() -> None:
    entry = ModelEntry.model_validate(
        {
            "name": "tiny",
            "hub": {"id": "acme/Tiny-1B"},
            "family": "tiny",
            "tool_call_parser": "hermes",
            "reasoning_parser": "qwen3",
            "args": ["--a"],
            "env": {"X": "entry", "Y": "entry"},
            "live": {"args": ["--b"], "env": {"X": "live"}},
            "cuda": {"args": ["--c"]},
            "hardware": {"gpus": 2},
            "lanes": ["live"],
        }
    )
    parsers = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3")
    live = entry.flags("live", "cuda")
    assert live.args == (*parsers, "--tensor-parallel-size", "2", "--a", "--b", "--c")
    assert live.env == {"X": "live", "Y": "entry"}
    assert entry.flags("scripted", "cpu") == Flags(args=(*parsers, "--a"), env={"X": "entry", "Y": "entry"})


def test_an_entry_is_found_by_its_hub_id(write: Write) -> None:
    assert load_models(write(MINIMAL)).get("Acme/tiny-1b").name == "tiny"


def test_an_unknown_model_brings_the_nearest_names(write: Write) -> None:
    with pytest.raises(ModelsFileError, match="unknown model 'tinny'") as raised:
        load_models(write(MINIMAL)).get("tinny")
    assert "tiny" in raised.value.hint
    assert raised.value.exit_code == 2
    with pytest.raises(ModelsFileError) as raised:
        load_models(write(MINIMAL)).get("acme/tiny-2b")
    assert "acme/Tiny-1B" in raised.value.hint


BAD = {
    "unknown key": (
        MINIMAL + "    tool_call_praser: hermes\n",
        r"models.yaml:6: models.tiny.tool_call_praser: unknown key, did you mean 'tool_call_parser'\?",
    ),
    "unknown nested key": (
        MINIMAL + "    hardware:\n      gpu: 1\n",
        r"models.yaml:7: models.tiny.hardware.gpu: unknown key, did you mean 'gpus'\?",
    ),
    "unknown key near nothing": (MINIMAL + "    zzz: 1\n", r"models.yaml:6: models.tiny.zzz: unknown key$"),
    "missing key": (
        MINIMAL.replace("    family: tiny\n", ""),
        r"models.yaml:2: models.tiny.family: Field required",
    ),
    "wrong type": (
        MINIMAL + "    hardware: {gpus: many}\n",
        r"models.yaml:6: models.tiny.hardware.gpus: .*integer",
    ),
    "wrong item of a list": (
        MINIMAL.replace("[live]", "\n      - live\n      - lve"),
        r"models.yaml:7: models.tiny.lanes.1: .*'live' or 'scripted'",
    ),
    "no lane": (MINIMAL.replace("[live]", "[]"), r"models.yaml:5: models.tiny.lanes"),
    "entry is text": ("models:\n  tiny: hello\n", r"models.yaml:2: models.tiny: "),
    "name in an entry": (
        MINIMAL + "    name: other\n",
        r"models.yaml:1: models: the key of tiny is its name",
    ),
    "scripted without stand-in": (
        MINIMAL.replace("[live]", "[scripted]"),
        r"models.yaml:2: models.tiny: lane 'scripted' needs 'stand_in'",
    ),
    "duplicate key": (MINIMAL + "    family: again\n", r"models.yaml:6: duplicate key 'family'"),
    "duplicate entry": (MINIMAL + MINIMAL.removeprefix("models:\n"), r"models.yaml:6: duplicate key 'tiny'"),
    "malformed YAML": ("models:\n  tiny: [1\n  more: 2\n", r"models.yaml:\d: "),
    "tab": ("models:\n\ttiny: 1\n", r"models.yaml:2: .*cannot start any token"),
    "unsafe tag": (
        "models: !!python/object/apply:os.system [id]\n",
        r"models.yaml:1: could not determine a constructor",
    ),
    "impossible date": ("models: 2026-99-99\n", r"models.yaml: "),
    "two documents": ("models: {}\n---\nmodels: {}\n", r"models.yaml:2: "),
    "empty": ("# nothing\n", r"models.yaml:1: the file is empty"),
    "a list": ("- models\n", r"models.yaml:1: a top-level key 'models'"),
    "another top-level key": (MINIMAL + "more: 1\n", r"models.yaml:\d+: more: unknown key"),
    "too big": ("#" * 2_000_001, r"models.yaml:1: more than 2000000 bytes"),
    "not UTF-8": (b"models:\n  caf\xe9: 1\n", r"models.yaml:2: not UTF-8 at byte 13"),
    "nested too deeply": ("[" * 100_000, r"models.yaml:1: nested too deeply"),
    "alias of itself": ("models: &a [*a]\n", r"models.yaml:1: its aliases stand for more than"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_the_error_of_an_invalid_file_names_file_line_and_key(
    write: Write, content: str | bytes, message: str
) -> None:
    with pytest.raises(ModelsFileError, match=message):
        load_models(write(content))


def test_the_error_names_every_problem(write: Write) -> None:
    with pytest.raises(ModelsFileError) as raised:
        load_models(write(MINIMAL + "    zzz: 1\n    harmony: maybe\n"))
    assert [line.split(": ")[1] for line in raised.value.message.splitlines()] == [
        "models.tiny.harmony",
        "models.tiny.zzz",
    ]


def test_nested_aliases_are_visited_once(write: Write) -> None:
    levels = "\n".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 30))
    with pytest.raises(ModelsFileError):
        load_models(write(f"models:\n  l0: &l0 [x]\n{levels}\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelsFileError, match="No such file"):
        load_models(tmp_path / "none.yaml")


def test_the_rust_front_end_has_no_parser_flags_for_harmony() -> None:
    harmony, other = load_models().get("gpt-oss"), load_models().get("qwen3")
    assert "--tool-call-parser" in harmony.flags("scripted", "cpu").args
    assert harmony.flags("scripted", "cpu", "rust").args == ()
    assert other.flags("scripted", "cpu", "rust") == other.flags("scripted", "cpu")
