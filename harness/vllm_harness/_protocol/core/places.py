"""Places in a JSON value, by their path."""

from __future__ import annotations

import re

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def kind_at(value: object, path: str) -> str:
    """The `type` of the innermost object that a JSON path lies in, the root left out.

    Args:
        value: the root, `$`.
        path: such as `$.response.output[0].status`; as much of it counts as there is in the value.

    Returns:
        The type, such as `reasoning`; empty where no object on the way has one.
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
