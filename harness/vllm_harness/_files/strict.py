"""The base class of models that are read from files: immutable, and without unknown keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class StrictModel(BaseModel):
    """A pydantic model that refuses unknown fields and is frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _compiled(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"invalid regular expression: {error}{_advice(pattern, error)}") from error
    return pattern


def _advice(pattern: str, error: re.error) -> str:
    if "global flags" in error.msg:
        flags = "".join(dict.fromkeys(re.findall(r"\(\?([aiLmsux]+)\)", pattern)))
        return f"; write ({'?' + flags}) at its start"
    return (
        "; put a backslash before a character such as ( [ ? + * . to match it"
        if error.pos is not None
        else ""
    )


Pattern = Annotated[str, AfterValidator(_compiled)]
"""A regular expression as a string; the error for an invalid expression says what to write instead."""


def keys_of(model: type[BaseModel], location: tuple[int | str, ...]) -> Collection[str]:
    """The keys that a model allows in the mapping at a location; empty if there is no mapping there."""
    here: type[BaseModel] | None = model
    free = False
    for part in location:
        if here is None:
            return ()
        field = _fields(here).get(part) if isinstance(part, str) and not free else None
        free = field is not None and get_origin(field.annotation) in (dict, Mapping)
        if field is not None:  # otherwise an item of a list, or a free key of a mapping
            here = _model_in(field.annotation)
    return () if here is None or free else _fields(here)


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def with_names(rows: Any) -> Any:
    """Adds to each row of a mapping its key as `name`; for use in a pydantic BeforeValidator."""
    if not isinstance(rows, dict):
        return rows
    if named := [key for key, row in rows.items() if isinstance(row, dict) and "name" in row]:
        raise ValueError(f"the key of {named[0]} is its name, so leave out 'name'")
    return {key: {**row, "name": key} if isinstance(row, dict) else row for key, row in rows.items()}
