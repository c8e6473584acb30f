"""What the forms of other tools have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from vllm_harness._errors import UsageError

_PATHS = ("/responses", "/chat/completions", "/messages")


class ForeignError(UsageError):
    """A file of another tool does not have that tool's form; file, line and key are named."""


class Loose(BaseModel):
    """A model that leaves aside what it does not know."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def of_the_apis(url: str) -> bool:
    """Whether a URL is one of the APIs."""
    return any(path in url for path in _PATHS)


def path_of(url: str) -> str:
    """Path and query of a URL."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def first_of_each(headers: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Headers by their names, whether a file has them as texts, as lists of texts or as pairs."""
    if isinstance(headers, Mapping):
        return {
            str(name): str(value[0] if isinstance(value, list) and value else value)
            for name, value in headers.items()
        }
    return {str(each.get("name")): str(each.get("value")) for each in headers}
