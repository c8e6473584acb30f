"""The base of what the harness reads from files: no unknown keys, and no change after reading."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A pydantic model that refuses unknown fields and is frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def keys_of(model: type[BaseModel], location: tuple[int | str, ...]) -> Collection[str]:
    """The keys of the mapping at a location in what a model holds; none where there is no mapping."""
    here: type[BaseModel] | None = model
    for part in location:
        if here is None:
            return ()
        fields = {field.alias or name: field for name, field in here.model_fields.items()}
        if isinstance(part, str) and part in fields:  # else an item of a list, or a free key of a mapping
            here = _model_in(fields[part].annotation)
    return [field.alias or name for name, field in here.model_fields.items()] if here else ()


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
