"""Helpers that the readers of all formats share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from vllm_harness._errors import UsageError

_PATHS = ("/responses", "/chat/completions", "/messages")


class ForeignError(UsageError):
    """A file does not have the format of its tool; the message names file, line and key."""


class Loose(BaseModel):
    """A model that ignores unknown keys."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def of_the_apis(url: str) -> bool:
    """Whether a URL belongs to one of the APIs."""
    return any(path in url for path in _PATHS)


def path_of(url: str) -> str:
    """The path and query of a URL."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def first_values(headers: Mapping[str, Any]) -> dict[str, str]:
    """The headers with one value each: the first one of a list."""
    return {
        str(name): str(value[0] if isinstance(value, list) and value else value)
        for name, value in headers.items()
    }
