"""The table of model families, and their tokenizers and stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._errors import UsageError
from vllm_harness._scripted.dialects import load_dialects
from vllm_harness._scripted.families import FILE, Family, family_entry, load_families, load_families_file
from vllm_harness._scripted.standin import build_stand_in
from vllm_harness._scripted.synthetic import Token, byte_tokenizer, chat_template, ids_of, with_tokens

SYNTHETIC = [family for family in load_families().values() if family.form]
by_name = pytest.mark.parametrize("family", SYNTHETIC, ids=lambda family: family.name)


@pytest.mark.parametrize(
    ("text", "instead", "problem"),
    [
        ("dialect: hermes", "dialect: hermess", "unknown dialect, did you mean 'hermes'"),
        ("dialect: hermes", "dialet: hermes", "hermes.dialet: Unexpected keyword argument"),
        ("model: NousResearch", "model: [NousResearch]  #", "hermes.model: Input should be a valid string"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, instead: str, problem: str) -> None:
    path = tmp_path / "families.yaml"
    changed = FILE.read_text().replace(text, instead, 1)
    path.write_text(changed)
    line = 1 + changed[: changed.index(instead)].count("\n")
    with pytest.raises(UsageError, match=rf"families\.yaml:{line}: families\..*{problem}"):
        load_families_file(path)


def test_the_table_refers_to_known_names() -> None:
    models = load_models().models
    for family in load_families().values():
        assert family.dialect in load_dialects()
        assert family.tool_parser or family.reasoning_parser
        assert family.form or family.entry
        if family.entry:
            assert models[family.entry].tool_call_parser == family.tool_parser
    for kind, reasons in load_families_file().without_family.model_dump().items():
        named = {
            family.tool_parser if kind == "tool_parsers" else family.reasoning_parser
            for family in load_families().values()
        }
        assert not named & reasons.keys()


@by_name
def test_markers_and_bytes_are_single_tokens(family: Family, tmp_path: Path) -> None:
    entry = family_entry(family, into=tmp_path)
    assert entry.stand_in is not None
    document = json.loads(Path(entry.stand_in.tokenizer, "tokenizer.json").read_text())
    ids = ids_of(document)
    assert len(set(ids.values())) == len(ids)
    assert len([number for number in ids.values() if number < 256]) == 256
    assert family.form is not None
    assert {*family.form.frame.tokens, *family.form.calls.tokens} <= ids.keys()
    assert ids[entry.stand_in.stop] in entry.stand_in.generation_config["eos_token_id"]
    assert max(ids.values()) < entry.stand_in.config["vocab_size"]


@by_name
def test_the_prompt_ends_with_the_tail_of_the_form(family: Family) -> None:
    assert family.form is not None
    template = ImmutableSandboxedEnvironment().from_string(chat_template(family.form))
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]
    prompt = template.render(messages=messages, tools=[tool], add_generation_prompt=True)
    assert prompt.startswith(family.form.frame.start)
    assert prompt.endswith(family.form.tail)
    places = [prompt.index(text) for text in ("Be brief.", "Hi.", "42")]
    assert places == sorted(places)
    assert '"f"' in template.render(messages=messages, tools=[tool])


def test_a_stand_in_is_written_once_for_the_same_content(tmp_path: Path) -> None:
    entry = family_entry(load_families()["glm45"], into=tmp_path)
    assert family_entry(load_families()["glm45"], into=tmp_path) == entry
    assert entry.stand_in is not None
    checkpoint = build_stand_in(entry, Path(entry.stand_in.tokenizer), tmp_path / "out")
    assert {path.name for path in checkpoint.iterdir()} == {
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
        "chat_template.jinja",
    }


def test_a_real_tokenizer_gets_the_missing_tokens(tmp_path: Path) -> None:
    real = byte_tokenizer([Token("<tool_call>", False)])
    (tmp_path / "tokenizer.json").write_text(json.dumps(real))
    entry = family_entry(load_families()["hermes"], real=tmp_path, into=tmp_path / "out")
    assert entry.stand_in is not None
    document = json.loads(Path(entry.stand_in.tokenizer, "tokenizer.json").read_text())
    contents = [token["content"] for token in document["added_tokens"]]
    assert contents[0] == "<tool_call>"
    assert len(contents) == len(set(contents)) > 4
    assert with_tokens(document, [Token("<tool_call>", True)]) == document


def test_pieces_get_the_required_ids() -> None:
    document = byte_tokenizer([Token("<x>", True)], merges=[("<", "/"), ("Ġ", "</")], ids={"</": 524})
    ids = ids_of(document)
    assert (ids["!"], ids["Ċ"], ids["</"], ids["Ġ</"], ids["<x>"]) == (0, 198, 524, 525, 526)
    assert ids_of(byte_tokenizer([], sentencepiece=True))["<0x0A>"] == 10


def test_harmony_needs_its_model_entry() -> None:
    with pytest.raises(ValueError, match="use model gpt-oss"):
        family_entry(load_families()["openai"])
