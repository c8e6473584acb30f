"""Shorter forms of a value in a file, for people; its JSON Schema has both."""

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
        raise ValueError("no value of JSON: a date, for one, stands in quotes") from error
    return value


Plain = Annotated[Any, BeforeValidator(_of_json)]
"""A value that JSON can write; YAML has more, such as dates."""


@dataclass(frozen=True)
class Shorthand:
    """For `Annotated`: a shorter form that a value may have.

    Attributes:
        whole: makes the whole form of a value, whichever form it has.
        schema: the JSON Schema of the shorter form, by that of the whole one.
    """

    whole: Callable[[Any], Any]
    schema: Callable[[Json], Json]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.whole, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        whole = handler(schema)
        return {"anyOf": [self.schema(whole), whole]}


def text_as(key: str) -> Shorthand:
    """A text in place of a mapping with it at this key."""
    return Shorthand(
        lambda value: {key: value} if isinstance(value, str) else value, lambda whole: {"type": "string"}
    )


def value_as(key: str) -> Shorthand:
    """Any value but a mapping in place of a mapping with it at this key."""
    types = ["string", "number", "boolean", "null", "array"]
    return Shorthand(
        lambda value: value if isinstance(value, Mapping) else {key: value}, lambda whole: {"type": types}
    )


ONE_OR_MORE = Shorthand(
    lambda value: value if isinstance(value, list | tuple) else [value], lambda whole: whole["items"]
)
"""A value in place of a list of it alone."""
