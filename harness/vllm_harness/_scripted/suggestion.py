"""Suggests a rule for a request: it matches such requests, and its answer has the form they ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vllm_harness._files.plain_yaml import plain_yaml

ANSWER = "Write the answer here."
_SHOWN = 60
_UNFORCED = ("auto", "none")
_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
_BY_TYPE: dict[str, Any] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def suggestion(entry: Mapping[str, Any]) -> str:
    """A rule in YAML, to paste below `rules:`.

    Args:
        entry: a request from the server's log; see `in_server/vllm_harness_served.py`.
    """
    rule = {"name": f"request {entry['number']}", "when": _when(entry), **_answer(entry, entry["body"] or {})}
    lines = plain_yaml([rule], allow_unicode=True, width=1000).splitlines()
    return "\n".join(f"  {line}" for line in lines)


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """A small value that is valid for a JSON schema, for the usual schemas of tools and answers."""
    root = schema if root is None else root
    if "$ref" in schema:
        return example(_at(root, *str(schema["$ref"]).removeprefix("#/").split("/")), root)
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
    """A pattern that matches the start of a text, or the whole text if it is short."""
    escaped = _SPECIAL.sub(r"\\\1", text[:_SHOWN])
    return f"^{escaped}$" if len(text) <= _SHOWN else f"^{escaped}"


def _answer(entry: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    if schema := _schema_of_answer(body):
        return {"constrained": True, "say": {"text": json.dumps(example(schema), ensure_ascii=False)}}
    if entry["format"] != "text":
        return {"constrained": True, "say": {"text": "{}"}}
    choice = entry["tool_choice"]
    tool = next((tool for tool in _tools(body) if choice in (*_UNFORCED, "required", tool["name"])), None)
    if tool and choice != "none" and not entry["tool_output"]:
        call = {"name": tool["name"], "arguments": example(tool["schema"])}
        return ({} if choice in _UNFORCED else {"constrained": True}) | {"say": {"calls": [call]}}
    return {"say": ANSWER}


def _schema_of_answer(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema for a structured answer, from the field that the API uses; None if there is none."""
    places = (_at(body, "text", "format"), _at(body, "response_format"), _at(body, "output_config", "format"))
    for place in places:
        schema = place.get("schema") or _at(place, "json_schema").get("schema")
        if isinstance(schema, dict):
            return schema
    return None


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The name and the parameter schema of each function that a request offers."""
    tools = [tool for tool in body.get("tools") or () if isinstance(tool, dict)]
    functions = [_at(tool, "function") or tool for tool in tools]
    return [
        {"name": function["name"], "schema": function.get("parameters") or function.get("input_schema") or {}}
        for function in functions
        if function.get("name")
    ]


def _at(value: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The object at a path of keys within an object; empty if there is none."""
    inner: Any = value
    for key in keys:
        inner = inner.get(key) if isinstance(inner, dict) else None
    return inner if isinstance(inner, dict) else {}
