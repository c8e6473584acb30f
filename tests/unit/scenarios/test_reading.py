"""Scenario files: errors name the file, the line and the key; the stories and the schema are valid."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from vllm_harness._errors import UsageError
from vllm_harness._files import located_yaml
from vllm_harness._scenarios.reading import find_scenario, read_scenario, schema, stories_of_package

RIGHT = """\
scenario: 1
title: Weather
tools:
  get_weather:
    parameters: {type: object, properties: {city: {type: string}}}
    outputs:
      - when: {city: Paris}
        output: sunny
turns:
  - name: ask
    user: Weather in Paris?
    expect: {calls: [{name: get_weather, arguments: {city: Paris}}]}
    say: {calls: [{name: get_weather, arguments: {city: Paris}}]}
  - name: answer
    expect: {calls: [], text: {contains: sunny}}
    say: It is sunny.
"""
# a piece of the valid file, its replacement, the line that the error names, and a part of the error
WRONG = {
    "hosted text": (
        "    user: Weather in Paris?",
        "    user: [{text: Hi, hosted: true}]",
        11,
        "only an image",
    ),
    "date in an output": (
        "output: sunny",
        "output: {due: 2026-12-01}",
        8,
        "write dates in quotes",
    ),
    "date in a predicate": ("{contains: sunny}", "{equals: 2026-12-01}", 15, "dates in quotes"),
    "token for an unknown server": (
        "- name: answer",
        "- name: answer\n    sends: {desk: x}",
        15,
        "no MCP server named 'desk'",
    ),
    "missing image of a tool": ("output: sunny", "images: [none.png]", 8, "No such file"),
    "truncated": ("expect: {calls: [], text: {contains: sunny}}", "expect: {calls: [", 17, "expected"),
    "no version": ("scenario: 1\n", "", 1, "the version of the format is missing"),
    "unknown version": ("scenario: 1", "scenario: 7", 1, "version 7 of the format is unknown"),
    "version that is not a number": ("scenario: 1", "scenario: true", 1, "version True"),
    "unknown key": ("    user: Weather", "    usr: Weather", 11, "unknown key, did you mean 'user'?"),
    "unknown key of a predicate": ("{contains: sunny}", "{contain: sunny}", 15, "did you mean 'contains'?"),
    "no turns": (RIGHT[RIGHT.index("turns:") :], "turns: []\n", 9, "give at least one"),
    "turn without a name": ("- name: answer\n    expect", "- expect", 14, "Field required"),
    "duplicate turn": ("- name: answer", "- name: ask", 14, "another turn is also named 'ask'"),
    "missing turn": ("- name: answer", "- name: answer\n    after: aks", 15, "did you mean 'ask'?"),
    "turn that continues itself": ("- name: ask", "- name: ask\n    after: ask", 11, "ask -> ask"),
    "cyclic branch": ("- name: ask", "- name: ask\n    after: answer", 11, "ask -> answer -> ask"),
    "later turn": (
        "- name: ask\n",
        "- {name: first, user: Hi, after: answer}\n  - name: ask\n    after: start\n",
        10,
        "'answer' is further down",
    ),
    "no user at the start": ("    user: Weather in Paris?\n", "", 10, "needs a 'user'"),
    "duplicate tool": (
        "turns:\n",
        "  get_weather: {parameters: {}, outputs: [{output: x}]}\nturns:\n",
        9,
        "duplicate key 'get_weather'",
    ),
    "duplicate tool of an MCP server": (
        "turns:\n",
        "mcp:\n  desk:\n    tools:\n      get_weather: {parameters: {}, outputs: [{output: x}]}\nturns:\n",
        12,
        "another tool is also named 'get_weather'",
    ),
    "duplicate built-in tool": (
        "title: Weather\ntools:\n",
        "built_in: code_interpreter\ntools:\n  code_interpreter: {parameters: {}, outputs: [{output: x}]}\n",
        4,
        "another tool is also named 'code_interpreter'",
    ),
    "output of a function": (
        "calls: [{name: get_weather, arguments: {city: Paris}}]}\n    say",
        "calls: [{name: get_weather, output: sunny}]}\n    say",
        12,
        "only a tool that the server calls",
    ),
    "built-in tools beside those over MCP": (
        "turns:\n",
        "built_in: web_search\nmcp:\n  desk:\n    called_by: server\n    tools:\n"
        "      find: {parameters: {}, outputs: [{output: x}]}\nturns:\n",
        9,
        "either built-in tools or those of MCP servers",
    ),
    "missing tools file": ("title: Weather", "tools_file: none.yaml", None, "No such file"),
    "tool without a schema": ("type: object, prop", "type: thing, prop", 5, "not a valid JSON Schema"),
    "tool without output": (
        "        output: sunny",
        "        error: none\n        output: sunny",
        7,
        "exactly one",
    ),
    "unknown expected tool": (
        "calls: [{name: get_weather, arguments: {city: Paris}}]}\n    say",
        "calls: [{name: get_wether}]}\n    say",
        12,
        "no tool is named 'get_wether'",
    ),
    "unknown tool choice": (
        "    user: Weather in Paris?",
        "    user: Weather in Paris?\n    tool_choice: get_wether",
        12,
        "no tool is named 'get_wether'",
    ),
    "output for other arguments": (
        "say: {calls: [{name: get_weather, arguments: {city: Paris}}]}",
        "say: {calls: [{name: get_weather, arguments: {city: Oslo}}]}",
        13,
        "no output of get_weather matches these arguments",
    ),
    "invalid regular expression": ("{contains: sunny}", "{matches: '('}", 15, "invalid regular expression"),
    "empty predicate": ("{contains: sunny}", "{}", 15, "give at least one of"),
    "missing image": ("user: Weather in Paris?", "user: [{image: none.png}]", 11, "none.png"),
}


def written(text: str, folder: Path) -> Path:
    path = folder / "story.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_its_line(name: str, tmp_path: Path) -> None:
    old, new, line, words = WRONG[name]
    assert RIGHT.count(old) == 1
    path = written(RIGHT.replace(old, new), tmp_path)
    with pytest.raises(UsageError) as caught:
        read_scenario(path)
    assert words in caught.value.message
    if line is not None:
        assert f"{path}:{line}: " in caught.value.message


def test_a_scenario_is_read(tmp_path: Path) -> None:
    scenario = read_scenario(written(RIGHT, tmp_path))
    first, second = scenario.turns
    assert scenario.ancestors(second) == [first]
    assert scenario.scriptable
    assert [part.text for part in first.user] == ["Weather in Paris?"]


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse file: it takes no disk space, but reading it would fill the memory
    with pytest.raises(UsageError, match=r"large\.yaml:1: more than"):
        read_scenario(path)


def test_aliases_that_expand_too_far_are_refused(tmp_path: Path) -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.raises(UsageError, match=r"story\.yaml:1: its aliases stand for more than"):
        read_scenario(written(f"scenario: 1\nl0: &l0 [x]\n{levels}", tmp_path))
    with pytest.raises(UsageError, match=r"story\.yaml:1: its aliases stand for more than"):
        located_yaml.read_yaml(written("a: &a [*a]\n", tmp_path))


def test_a_compressed_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "story.yaml.gz"
    path.write_bytes(gzip.compress(bytes(2**24)) * 64)
    with pytest.raises(
        UsageError, match=r"story\.yaml\.gz:1: more than 2000000 bytes when it is decompressed"
    ):
        read_scenario(path)


def test_tools_of_another_file_and_their_problems(tmp_path: Path) -> None:
    tools = RIGHT[RIGHT.index("  get_weather") : RIGHT.index("turns:")]
    without = RIGHT.replace(f"tools:\n{tools}", "tools_file: tools.yaml\n")
    (tmp_path / "tools.yaml").write_text("\n".join(line[2:] for line in tools.splitlines()))
    assert list(read_scenario(written(without, tmp_path)).tools) == ["get_weather"]
    with pytest.raises(UsageError, match=r"story\.yaml:4: tools\.get_weather: .*tools\.yaml also has a tool"):
        read_scenario(written(RIGHT.replace("title: Weather", "tools_file: tools.yaml"), tmp_path))
    (tmp_path / "tools.yaml").write_text("get_weather: {parameters: {}, output: []}\n")
    with pytest.raises(UsageError, match=r"tools\.yaml:1: get_weather\.output: .*did you mean 'outputs'"):
        read_scenario(written(without, tmp_path))


def test_stories_are_found_by_name() -> None:
    assert find_scenario("etl-three-turns").name == "etl-three-turns.yaml"
    with pytest.raises(UsageError, match="etl-three-turns"):
        find_scenario("etl-three-turn")


def accepted(text: str) -> bool:
    return jsonschema.Draft202012Validator(schema()).is_valid(yaml.safe_load(text))


def test_the_schema_accepts_only_valid_scenarios() -> None:
    stories = stories_of_package()
    assert len(stories) >= 5
    for story in stories:
        assert read_scenario(story).turns
        assert accepted(story.read_text())
    assert accepted(RIGHT)
    for name in (
        "unknown version",
        "unknown key",
        "unknown key of a predicate",
        "no turns",
        "turn without a name",
    ):
        old, new, _, _ = WRONG[name]
        assert not accepted(RIGHT.replace(old, new)), name


def test_every_key_is_described() -> None:
    """The description of each mapping, which editors show, mentions all keys of the mapping."""
    definitions: dict[str, Any] = schema()["$defs"]
    for name, definition in {**definitions, "Scenario": schema()}.items():
        if "properties" in definition and name not in {"CallSpec", "SaySpec"}:
            missing = [key for key in definition["properties"] if key not in definition["description"]]
            assert not missing, name
