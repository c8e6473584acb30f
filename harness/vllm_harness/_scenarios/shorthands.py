"""Shorter forms of values in a file; the JSON Schema has both forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

Json = dict[str, Any]


def _of_json(value: Any) -> Any:
    try:
        json.dumps(value)
    except TypeError as error:
        raise ValueError("not a JSON value; write dates in quotes") from error
    return value


Plain = Annotated[Any, BeforeValidator(_of_json)]
"""A JSON value; rejects other values that YAML allows, such as dates."""


@dataclass(frozen=True)
class Shorthand:
    """A shorter form of a value, for `Annotated`.

    Attributes:
        whole: makes the full form from either form.
        schema: makes the JSON Schema of the shorter form from that of the full form.
    """

    whole: Callable[[Any], Any]
    schema: Callable[[Json], Json]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        whole = handler(schema)
        return {"anyOf": [self.schema(whole), whole]}


def text_as(key: str) -> Shorthand:
    """Allows a string in place of a mapping that has the string under this key."""
    return Shorthand(
        lambda value: {key: value} if isinstance(value, str) else value, lambda whole: {"type": "string"}
    )


def value_as(key: str) -> Shorthand:
    """Allows any value that is not a mapping in place of a mapping that has the value under this key."""
    types = ["string", "number", "boolean", "null", "array"]
    return Shorthand(
        lambda value: value if isinstance(value, Mapping) else {key: value}, lambda whole: {"type": types}
    )


ONE_OR_MORE = Shorthand(
    lambda value: value if isinstance(value, list | tuple) else [value], lambda whole: whole["items"]
)
"""Allows a single value in place of a list with one item."""
