"""The rule that a request suggests: it takes requests like this one, and its answer is what they ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vllm_harness._files.plain_yaml import plain_yaml

ANSWER = "Write the answer here."
_SHOWN = 60
_FORCED = ("auto", "none")
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
_BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def suggestion(entry: Mapping[str, Any]) -> str:
    """A rule in YAML, to be pasted below `rules:`.

    Args:
        entry: a request, as the server's log has it; see `in_server/vllm_harness_served.py`.
    """
    rule = {"name": f"request {entry['number']}", "when": _when(entry), **_say(entry, entry["body"] or {})}
    lines = plain_yaml([rule], allow_unicode=True, width=1000).splitlines()
    return "\n".join(f"  {line}" for line in lines)


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """A small value that a JSON schema holds for; of the schemas that people write for tools and answers."""
    root = schema if root is None else root
    if "$ref" in schema:
        return example(_referred(str(schema["$ref"]), root), root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example(schema[key][0], root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        names = schema.get("required", list(properties))
        return {name: example(properties.get(name, {}), root) for name in names}
    if kind == "array":
        return [example(schema.get("items", {}), root)] * max(1, schema.get("minItems", 1))
    if kind in ("integer", "number") and "minimum" in schema:
        return schema["minimum"]
    return _BY_TYPE.get(kind, "text")


def _referred(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _when(entry: Mapping[str, Any]) -> dict[str, Any]:
    when: dict[str, Any] = {"turn": entry["turn"]}
    if entry["user"]:
        when["user"] = _pattern(entry["user"])
    if entry["tool_output"]:
        when["tool_output"] = _pattern(entry["tool_output"])
    if entry["tools"]:
        when["tools"] = list(entry["tools"])
    if entry["format"] != "text":
        when["format"] = entry["format"]
    return when


def _pattern(text: str) -> str:
    """A pattern for the beginning of a text; for all of it where it is short."""
    begin = text[:_SHOWN]
    escaped = _SPECIAL.sub(r"\\\1", begin)
    return f"^{escaped}$" if begin == text else f"^{escaped}"


def _say(entry: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    if schema := _schema_of_answer(body):
        return {"constrained": True, "say": {"text": json.dumps(example(schema), ensure_ascii=False)}}
    if entry["format"] != "text":
        return {"constrained": True, "say": {"text": "{}"}}
    choice = entry["tool_choice"]
    tool = next((tool for tool in _tools(body) if choice in (*_FORCED, "required", tool["name"])), None)
    if tool and choice != "none" and not entry["tool_output"]:
        call = {"name": tool["name"], "arguments": example(tool["schema"])}
        return ({} if choice in _FORCED else {"constrained": True}) | {"say": {"calls": [call]}}
    return {"say": ANSWER}


def _schema_of_answer(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of a structured answer, in the place where an API has it."""
    places = (_at(body, "text", "format"), _at(body, "response_format"), _at(body, "output_config", "format"))
    for place in places:
        schema = place.get("schema") or _at(place, "json_schema").get("schema")
        if isinstance(schema, dict):
            return schema
    return None


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions that a request offers: name and schema of each."""
    given = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    functions = [_at(tool, "function") or tool for tool in given]
    return [
        {"name": each["name"], "schema": each.get("parameters") or each.get("input_schema") or {}}
        for each in functions
        if each.get("name")
    ]


def _at(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    found: Any = value
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
