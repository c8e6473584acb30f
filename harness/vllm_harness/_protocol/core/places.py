"""Lookup in a JSON value by path."""

from __future__ import annotations

import re

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def kind_at(value: object, path: str) -> str:
    """The `type` of the innermost object on a JSON path, except the root.

    Args:
        value: the root, `$`.
        path: a path such as `$.response.output[0].status`; steps that the value does not have are ignored.

    Returns:
        The type, such as `reasoning`; empty if no object on the path has one.
    """
    kind = ""
    for key, number in _STEP.findall(path):
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and number and int(number) < len(value):
            value = value[int(number)]
        else:
            break
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            kind = value["type"]
    return kind
