"""Checks which field an error object names, over any API."""

from __future__ import annotations

import re
from typing import Any

OF_THE_BODY = "body."
"""vLLM prefixes it to the names of fields that validation refuses, and omits it elsewhere."""
NAMES = re.compile(r"\w+(\.\w+)*")
INTERNALS = frozenset({"str", "int", "float", "bool", "list", "dict", "union", "nullable", "none"})


def check_param(error: dict[str, Any], expected: str | None = None) -> None:
    """Asserts that the error's param is this path, ignoring `body.`, without pydantic's types or markers.

    Args:
        error: the error object.
        expected: the path of the wrong field, such as `tools.0.function`; None accepts any path, or null.
    """
    param = error.get("param")
    if expected is not None:
        assert param is not None, f"no param, expected {expected}: {error['message']}"
        assert param.removeprefix(OF_THE_BODY) == expected
    elif param is not None:
        assert NAMES.fullmatch(param), param
        assert not INTERNALS & set(param.split(".")), param
