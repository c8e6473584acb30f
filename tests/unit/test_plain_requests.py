"""Tests send plain requests with the endpoint, which adds the API key, and not with an HTTP library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN_WAY = {
    "tests/unit/testing/test_traffic.py": "the taps see the requests of every library",
}
"""The modules that are allowed to send requests with a library, and why."""
SENDS_NOTHING = {"ConnectionError", "RequestException", "Response"}
"""The names that a module may import from requests: the types that the endpoint returns and raises."""


def found(source: str) -> Iterator[str]:
    """Yields the code in a module's source that bypasses the endpoint."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                imported = [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module="requests", names=names):
                imported = ["requests"] if {alias.name for alias in names} - SENDS_NOTHING else []
            case ast.ImportFrom(module=str(module)):
                imported = [module.partition(".")[0]]
            case ast.Attribute(attr="default_headers"):
                yield f"line {node.lineno}: default_headers, which lack the key"
                continue
            case _:
                continue
        yield from (f"line {node.lineno}: {name}" for name in imported if name in ("httpx", "requests"))


def test_no_test_sends_by_a_library_of_its_own() -> None:
    modules = {
        str(path.relative_to(ROOT)): list(found(path.read_text()))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    bypassing = {name: lines for name, lines in modules.items() if lines}
    assert {name: lines for name, lines in bypassing.items() if name not in OWN_WAY} == {}
    assert set(OWN_WAY) <= set(bypassing), "a module in OWN_WAY no longer needs to be there"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("import httpx", 1),
        ("import requests.adapters as adapters", 1),
        ("def f():\n    from httpx import Client", 1),
        ("from requests import Response, get", 1),
        ("from requests.sessions import Session", 1),
        ("headers = client.default_headers", 1),
        ("from requests import Response\nimport httpx2", 0),
        ("client = OpenAI(default_headers={})", 0),
    ],
)
def test_what_counts(source: str, number: int) -> None:
    assert len(list(found(source))) == number
