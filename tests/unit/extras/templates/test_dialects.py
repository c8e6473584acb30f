"""Each dialect is what its vendor's template writes, and each change of either is reported by name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_harness._environments import assets
from vllm_harness._scripted.dialects import find_dialect, load_dialects, load_forms
from vllm_harness._scripted.families import load_families, title_of, unverified
from vllm_harness.cli.main import app
from vllm_harness.extras.templates.check import DialectCheck, check_dialect, spelled_markers
from vllm_harness.extras.templates.pairs import load_pairs

FEW = 16
"""Turns to draw in a quick test: two of each shape."""


def template(dialect: str) -> Path:
    """The template of a dialect, from the cache; skips the test if it is not there."""
    asset, _, name = load_pairs()[dialect].template.partition("/")
    fetched = assets.cached(asset)
    if fetched is None:
        pytest.skip(f"needs an asset: vllm-harness env assets fetch {asset}")
    return fetched.folder / name


def check(dialect: str, path: Path, draws: int = FEW) -> DialectCheck:
    return check_dialect(find_dialect(dialect), load_forms().get(dialect), load_pairs()[dialect], path, draws)


@pytest.mark.parametrize("dialect", load_pairs())
def test_a_dialect_renders_what_its_template_writes(dialect: str) -> None:
    assert [found.name for found in check(dialect, template(dialect)).new] == []


@pytest.mark.vllm_slow
@pytest.mark.parametrize("dialect", load_pairs())
def test_a_dialect_renders_what_its_template_writes_in_many_turns(dialect: str) -> None:
    result = check(dialect, template(dialect), 300)
    assert result.turns >= 300
    assert [found.name for found in result.new] == []


def test_a_source_says_whether_a_template_proves_it() -> None:
    proven = {name for name, pair in load_pairs().items() if pair.proves}
    unproven = {name for name, dialect in load_dialects().items() if dialect.source.startswith("unverified")}
    assert load_dialects().keys() - unproven == proven


@pytest.mark.parametrize("dialect", ["ling3", "nemotron_v3", "qwen35", "minimax_m3", "gemma4", "seed_oss"])
def test_a_line_end_more_in_a_dialect_is_reported(dialect: str) -> None:
    form = load_forms()[dialect]
    broken = replace(form, calls=replace(form.calls, call=form.calls.call + "\n"))
    pair, path = load_pairs()[dialect], template(dialect)
    result = check_dialect(replace(find_dialect(dialect), render=broken.render), broken, pair, path, FEW)
    assert not result.verified
    shapes = {found.name.partition(":")[0] for found in result.new}
    assert shapes & {"call", "reasoning, call"}
    assert any("the dialect writes" in found.name and "\\n" in found.name for found in result.new)
    assert any(found.line for found in result.new)


def test_a_blank_more_in_a_dialect_is_reported() -> None:
    form = load_forms()["qwen3"]
    broken = replace(form, calls=replace(form.calls, call=form.calls.call.replace('": $a', '":  $a')))
    result = check_dialect(
        replace(find_dialect("qwen3"), render=broken.render),
        broken,
        load_pairs()["qwen3"],
        template("qwen3"),
        FEW,
    )
    (found,) = [each for each in result.new if each.name.startswith("call:")]
    assert """"arguments":  {"city""" in found.name
    assert """"arguments": {"city""" in found.name


@pytest.mark.parametrize(
    ("dialect", "line", "instead"),
    [
        ("qwen35", r"{{- '\n\n<tool_call>", r"{{- '\n<tool_call>"),
        ("ling3", "{{- '\\n</tool_call>' }}", "{{- '</tool_call>' }}"),
        ("llama_json", "'\"parameters\": '", "'\"arguments\": '"),
    ],
)
def test_a_changed_line_of_a_template_is_reported(
    tmp_path: Path, dialect: str, line: str, instead: str
) -> None:
    source = template(dialect).read_text()
    assert line in source
    changed = tmp_path / "changed.jinja"
    changed.write_text(source.replace(line, instead, 1))
    number = source[: source.index(line)].count("\n") + 1
    result = check(dialect, changed)
    assert not result.verified
    assert number in {found.line for found in result.new}


def test_a_named_difference_that_is_gone_is_reported(tmp_path: Path) -> None:
    source = template("seed_oss").read_text()
    mended = tmp_path / "mended.jinja"
    mended.write_text(source.replace("else arg_value | string %}", "else arg_value | tojson %}"))
    names = [found.name for found in check("seed_oss", mended).new]
    assert any("values as in Python: the template has no line" in name for name in names)
    assert any(re.search(r"call.*the dialect writes", name) for name in names)


def test_a_template_that_raises_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jinja"
    broken.write_text("{{ raise_exception('no tools, please') }}")
    assert [found.name for found in check("qwen3", broken).new] == ["the template raises: no tools, please"]
    broken.write_text("{% if %}")
    (found,) = check("qwen3", broken).new
    assert found.name.startswith("the template raises: line 1: ")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["models", "dialects", *arguments])
    return result.exit_code, result.stdout


def test_the_command_holds_a_family_to_your_own_template() -> None:
    path = str(template("qwen3"))
    code, text = run("--check", "--json", "--parsers", "qwen3_json,jamba", "--chat-template", path)
    assert code == 1
    qwen3, jamba = json.loads(text)
    assert (qwen3["family"], qwen3["verified"], qwen3["provenance"]) == ("qwen3_json", True, "yours")
    assert (jamba["family"], jamba["verified"], jamba["template"]) == ("jamba", False, path)
    assert jamba["differences"]


def test_the_command_names_what_is_unverified() -> None:
    template("ling3")
    code, text = run("--check", "--parsers", "ling3,jamba")
    assert code == 0
    assert re.search(r"^jamba .* unverified", text, re.M)
    assert re.search(r"^ling3 .* yes", text, re.M)
    assert "1 of 2 families are verified, 1 dialects by 1 templates; 0 differences have no name" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--check", "--chat-template", "nowhere.jinja"], "has no family"),
        (["--check", "--parsers", "ling3", "--chat-template", "nowhere.jinja"], "is not a file"),
    ],
)
def test_a_template_needs_a_file_and_a_family(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["models", "dialects", *arguments])
    assert problem in str(result.exception)


def test_a_marker_that_a_tokenizer_spells_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vocabulary = {"<|im_start|>": 0, "<|im_end|>": 1, "<|endoftext|>": 2, "<think>": 3}
    document = {"added_tokens": [{"content": "</think>"}], "model": {"vocab": vocabulary}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    monkeypatch.setattr(assets, "cached", lambda name: assets.Fetched(tmp_path, name, 1))
    assert spelled_markers(load_families()["qwen3_json"]) == ("<tool_call>", "</tool_call>")
    assert spelled_markers(load_families()["jamba"]) == ()


def test_what_rests_on_unverified_families_says_so() -> None:
    assert title_of("jamba") == "jamba (unverified)"
    assert title_of("ling3") == "ling3"
    assert title_of("qwen3_thinking+real") == "qwen3_thinking+real (unverified)"
    assert title_of("a family of your own") == "a family of your own"
    assert unverified("jamba", "dots")
    assert not unverified("jamba", "ling3")
    assert not unverified()
    listed = CliRunner().invoke(app, ["defects", "--parser", "jamba"])
    assert " (unverified)" in listed.stdout
    shown = CliRunner().invoke(app, ["defects", "show", "jamba-broken-call"])
    assert "unverified:\n- jamba\n" in shown.stdout


def test_the_dialects_are_listed() -> None:
    listed = CliRunner().invoke(app, ["models", "dialects"]).stdout
    assert {line.split()[0] for line in listed.splitlines()[1:]} == set(load_dialects())
