"""Finds the families and HTTP APIs that a change to vLLM's files can affect."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._scripted.families import Family
from vllm_harness.extras.review.imports import Import, ModuleSource, Package, is_below

_REGISTRIES = {
    "vllm.tool_parsers": "_TOOL_PARSERS_TO_REGISTER",
    "vllm.reasoning": "_REASONING_PARSERS_TO_REGISTER",
}
"""By package of parsers: the name of its table, which maps a parser's name to a file and a class."""
_MANAGER = "vllm.parser.parser_manager"
_OF_ALL = (
    Import("vllm.parser.abstract_parser", "DelegatingParser"),
    Import("vllm.reasoning", "ReasoningParserManager"),
    Import("vllm.tool_parsers", "ToolParserManager"),
    Import("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),
    Import("vllm.tokenizers", "get_tokenizer"),
)
"""The imports of the chat endpoint that concern every parser."""


def touched_families(
    package: Path, families: Iterable[Family], changed: Collection[str]
) -> tuple[Family, ...]:
    """The families whose parsers reach a changed file by static imports.

    Args:
        package: the folder of vLLM's package after the change.
        families: the candidates.
        changed: the changed files, as paths below the package.
    """
    candidates = tuple(families)
    files = files_of_families(package, candidates, changed)
    return tuple(family for family in candidates if files[family.name])


def files_of_families(
    package: Path, families: Iterable[Family], changed: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The changed files that the parsers of each family reach; see `touched_families` for the arguments."""
    sources = Package(package)
    manager = {sources.file(_MANAGER)}
    return {
        family.name: tuple(sorted((sources.reached(_imports(sources, family)) | manager) & {*changed}))
        for family in families
    }


def _imports(package: Package, family: Family) -> Iterator[Import]:
    """The imports with which a server loads the parsers of a family."""
    yield from _OF_ALL
    names = dict(zip(_REGISTRIES, (family.tool_parser, family.reasoning_parser), strict=True))
    for registry, name in names.items():
        source = package.source(registry)
        table = source.constants.get(_REGISTRIES[registry]) if source else None
        if isinstance(table, dict) and name in table:
            file, parser = table[name]
            yield Import(f"{registry}.{file}", parser)
    if manager := package.source(_MANAGER):
        yield from _composed(manager, {name for name in names.values() if name})


def _composed(manager: ModuleSource, parsers: set[str]) -> Iterator[Import]:
    """The imports of the parser manager in branches whose conditions name one of these parsers."""
    for node in ast.walk(manager.tree):
        if isinstance(node, ast.If) and not parsers.isdisjoint(_texts(node.test, manager)):
            for statement in node.body:
                yield from manager.imports_in(statement)


def _texts(node: ast.AST, source: ModuleSource) -> Iterator[str]:
    """The strings of an expression, including the values of constants that it names."""
    for part in ast.walk(node):
        value: object = part.value if isinstance(part, ast.Constant) else None
        if isinstance(part, ast.Name):
            value = source.constants.get(part.id)
        if isinstance(value, str):
            yield value


@dataclass(frozen=True)
class ApiCode:
    """The package of one of vLLM's HTTP APIs, and the pattern of the test files that test only this API."""

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

    These are all APIs if a changed file is outside their packages, or if code that they share imports it.
    See `touched_families` for the arguments.
    """
    sources = Package(package, _PACKAGES)
    modules = {api: list(sources.modules(api.package)) for api in APIS}
    own = {sources.file(module) for of_api in modules.values() for module in of_api}
    if not set(changed) <= own - sources.reached(_shared(sources)):
        return APIS
    reached = {api: sources.reached(map(Import, modules[api])) for api in APIS}
    return tuple(api for api in APIS if not reached[api].isdisjoint(changed))


def untouched_apis(touched: Collection[ApiCode]) -> list[ApiCode]:
    """The other APIs."""
    return [api for api in APIS if api not in touched]


def ignoring(apis: Iterable[ApiCode]) -> list[str]:
    """The pytest options that leave out the test files of these APIs alone."""
    return [f"--ignore-glob=*/{api.tests}" for api in apis]


def _shared(sources: Package) -> Iterator[Import]:
    """The imports of the APIs' code in modules outside their packages."""
    words = [package.rpartition(".")[2] for package in _PACKAGES]
    for module in sources.modules("vllm"):
        if not is_below(module, (*_PACKAGES, *_NO_API_RUNS)) and sources.contains_any(module, words):
            source = sources.source(module)
            imports = source.imports if source else ()
            yield from (imported for imported in imports if is_below(imported.module, _PACKAGES))
