"""Stand-in checkpoints: their files, which are written only once for the same content."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._scripted.standin import StandInError, build_stand_in, stand_in_args

TOKENIZER = {
    "model": {"vocab": {"a": 0, "é": 1}},
    "added_tokens": [{"id": 2, "content": "<|reserved|>"}, {"id": 3, "content": "<|end|>"}],
}
TOKENIZER_CONFIG = {"added_tokens_decoder": {"2": {"content": "<|reserved|>"}, "3": {"content": "<|end|>"}}}


def an_entry(**stand_in: Any) -> ModelEntry:
    return ModelEntry.model_validate(
        {
            "name": "tiny",
            "hub": {"id": "acme/Tiny-1B"},
            "family": "tiny",
            "dialect": "hermes",
            "lanes": ["scripted"],
            "stand_in": {
                "config": {"hidden_size": 128},
                "generation_config": {"eos_token_id": [3]},
                "tokenizer": "tokenizer-tiny",
                "stop": "<|end|>",
                **stand_in,
            },
        }
    )


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    (folder / "model.safetensors").write_text("weights")
    return folder


def test_a_checkpoint_has_only_configs_and_tokenizer(tokenizer: Path, tmp_path: Path) -> None:
    checkpoint = build_stand_in(an_entry(), tokenizer, tmp_path / "out")
    assert sorted(path.name for path in checkpoint.iterdir()) == [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert json.loads((checkpoint / "config.json").read_text()) == {"hidden_size": 128}
    assert json.loads((checkpoint / "generation_config.json").read_text()) == {"eos_token_id": [3]}
    assert (checkpoint / "tokenizer.json").samefile(tokenizer / "tokenizer.json")


def test_each_content_is_built_once(tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = build_stand_in(an_entry(), tokenizer, out)
    inode = (first / "config.json").stat().st_ino
    assert build_stand_in(an_entry(), tokenizer, out) == first
    assert (first / "config.json").stat().st_ino == inode
    other = build_stand_in(an_entry(config={"hidden_size": 64}), tokenizer, out)
    (tokenizer / "tokenizer_config.json").unlink()
    third = build_stand_in(an_entry(), tokenizer, out)
    assert len({first, other, third}) == 3
    assert sorted(out.iterdir()) == sorted([first, other, third])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("config.json", damage) for damage in (None, b"", b"\xff\xfe", b'{"hidden_size":')),
        *(("generation_config.json", b""), ("tokenizer.json", b""), ("tokenizer_config.json", None)),
    ],
)
def test_a_damaged_checkpoint_is_built_again(
    name: str, damage: bytes | None, tokenizer: Path, tmp_path: Path
) -> None:
    entry = an_entry(tokens={2: "<|tool|>"})
    checkpoint = build_stand_in(entry, tokenizer, tmp_path / "out")
    whole = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    (checkpoint / name).unlink()
    if damage is not None:
        (checkpoint / name).write_bytes(damage)
    assert build_stand_in(entry, tokenizer, tmp_path / "out") == checkpoint
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == whole


def test_many_builders_at_once_agree(tokenizer: Path, tmp_path: Path) -> None:
    entry = an_entry(tokens={2: "<|tool|>"})
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda _: build_stand_in(entry, tokenizer, tmp_path / "out"), range(16)))
    assert len(set(built)) == 1
    assert list((tmp_path / "out").iterdir()) == built[:1]


def test_tokens_are_renamed_only_in_the_copy(tokenizer: Path, tmp_path: Path) -> None:
    checkpoint = build_stand_in(an_entry(tokens={2: "<|tool|>"}), tokenizer, tmp_path / "out")
    document = json.loads((checkpoint / "tokenizer.json").read_text())
    assert [token["content"] for token in document["added_tokens"]] == ["<|tool|>", "<|end|>"]
    assert document["model"] == TOKENIZER["model"]
    config = json.loads((checkpoint / "tokenizer_config.json").read_text())
    assert config["added_tokens_decoder"]["2"]["content"] == "<|tool|>"
    assert json.loads((tokenizer / "tokenizer.json").read_text()) == TOKENIZER


def test_tokens_and_processors_are_added(tokenizer: Path, tmp_path: Path) -> None:
    """Reserved tokens fill the gaps between token ids, since a tokenizer does not accept gaps."""
    entry = an_entry(
        further_tokens={4: "<image>", 6: "<tile>"}, processors={"processor_config.json": {"n": 4}}
    )
    checkpoint = build_stand_in(entry, tokenizer, tmp_path / "out")
    document = json.loads((checkpoint / "tokenizer.json").read_text())
    added = [(token["id"], token["content"]) for token in document["added_tokens"]]
    assert added[2:] == [(4, "<image>"), (5, "<|reserved_5|>"), (6, "<tile>")]
    assert json.loads((checkpoint / "processor_config.json").read_text()) == {"n": 4}
    with pytest.raises(StandInError, match="already has the token ids up to 3"):
        build_stand_in(an_entry(further_tokens={3: "<image>"}), tokenizer, tmp_path / "out")


def test_a_failed_build_leaves_nothing(tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(StandInError, match="no added token with id 9"):
        build_stand_in(an_entry(tokens={9: "<|tool|>"}), tokenizer, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StandInError, match=r"no tokenizer\.json") as raised:
        build_stand_in(an_entry(), tmp_path, tmp_path / "out")
    assert "tokenizer-tiny" in raised.value.hint


def test_an_entry_without_stand_in_is_refused(tokenizer: Path) -> None:
    entry = an_entry().model_copy(update={"stand_in": None})
    with pytest.raises(StandInError, match="'tiny' has no stand_in"):
        build_stand_in(entry, tokenizer)


def test_its_own_arguments_come_last() -> None:
    args = stand_in_args(an_entry(args=["--max-model-len", 1024]))
    assert args[:3] == ("--load-format", "dummy", "--enforce-eager")
    assert args[-2:] == ("--max-model-len", "1024")
