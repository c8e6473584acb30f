"""Helpers that the readers of the other tools' formats share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from vllm_harness._errors import UsageError

_PATHS = ("/responses", "/chat/completions", "/messages")


class ForeignError(UsageError):
    """A file is not in the format of the tool that wrote it; the message names the file, line and key."""


class Loose(BaseModel):
    """A model that ignores unknown keys."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def of_the_apis(url: str) -> bool:
    """Whether a URL belongs to Responses, Chat Completions or Messages."""
    return any(path in url for path in _PATHS)


def path_of(url: str) -> str:
    """The path and query of a URL."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def first_values(headers: Mapping[str, Any]) -> dict[str, str]:
    """The headers with a single value each: the first value if it is a list."""
    return {
        str(name): str(value[0] if isinstance(value, list) and value else value)
        for name, value in headers.items()
    }
