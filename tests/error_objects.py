"""Checks which request field an API's error object names in `param`."""

from __future__ import annotations

import re
from typing import Any

OF_THE_BODY = "body."
"""The prefix that vLLM adds to field names in validation errors, but not in other errors."""
NAMES = re.compile(r"\w+(\.\w+)*")
INTERNALS = frozenset({"str", "int", "float", "bool", "list", "dict", "union", "nullable", "none"})


def check_param(error: dict[str, Any], expected: str | None = None) -> None:
    """Checks the error's `param`: it must not contain pydantic's type names, and must match `expected`.

    Args:
        error: the error object.
        expected: the path of the wrong field, such as `tools.0.function`, without `body.`; None accepts any
            path, or null.
    """
    param = error.get("param")
    if expected is not None:
        assert param is not None, f"no param, expected {expected}: {error['message']}"
        assert param.removeprefix(OF_THE_BODY) == expected
    elif param is not None:
        assert NAMES.fullmatch(param), param
        assert not INTERNALS & set(param.split(".")), param
