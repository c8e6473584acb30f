"""Finds the HTTP APIs that a change of vLLM's files can affect, for the suites that test them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._regression.changed.imports import Import, Package, is_below


@dataclass(frozen=True)
class ApiCode:
    """The code of an HTTP API of vLLM, and its tests.

    Attributes:
        name: the name for messages.
        package: the package with its code.
        tests: the pattern of the test files that test no other API.
    """

    name: str
    package: str
    tests: str


APIS = (
    ApiCode("Responses", "vllm.entrypoints.openai.responses", "test_responses*.py"),
    ApiCode("Chat Completions", "vllm.entrypoints.openai.chat_completion", "test_chat*.py"),
    ApiCode("Messages", "vllm.entrypoints.anthropic", "test_messages*.py"),
)
_PACKAGES = tuple(api.package for api in APIS)
_NO_API_RUNS = (
    *("vllm.entrypoints.generate.api_router", "vllm.entrypoints.generate.factories"),
    *("vllm.entrypoints.launchers", "vllm.entrypoints.scale_out", "vllm.entrypoints.cohere"),
)
"""Packages that import the code of APIs only to mount it, or for other APIs."""


def touched_apis(package: Path, changed: Collection[str]) -> tuple[ApiCode, ...]:
    """The APIs whose packages contain or import a changed file.

    These are all APIs if a changed file is outside their packages, or is imported by code that they share.

    Args:
        package: the folder of vLLM's package after the change.
        changed: the changed files, as paths below the package.
    """
    sources = Package(package, _PACKAGES)
    modules = {api: list(sources.modules(api.package)) for api in APIS}
    own = {sources.file(module) for of_api in modules.values() for module in of_api}
    if not set(changed) <= own - sources.reached(_shared(sources)):
        return APIS
    reached = {api: sources.reached(map(Import, modules[api])) for api in APIS}
    return tuple(api for api in APIS if not reached[api].isdisjoint(changed))


def _shared(sources: Package) -> Iterator[Import]:
    """The imports of the APIs' code in modules outside their packages."""
    words = [package.rpartition(".")[2] for package in _PACKAGES]
    for module in sources.modules("vllm"):
        if not is_below(module, (*_PACKAGES, *_NO_API_RUNS)) and sources.contains_any(module, words):
            source = sources.source(module)
            imports = source.imports if source else ()
            yield from (imported for imported in imports if is_below(imported.module, _PACKAGES))
