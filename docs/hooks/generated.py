"""A hook of mkdocs: pages that are generated from the code, and a check that no page loads from elsewhere.

`reference/commands.md` comes from the command line, `reference/pytest.md` from the plugin,
`reference/models.md` from the model of models.yaml, `reference/defects.md` from the registry of defects and
what was measured of it, and `reference/upstream-tests.md` from what runs of vLLM's own tests measured;
documents of the root become pages as they are.
"""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vllm_harness.cli.main import app
from vllm_harness.configuration.model_entries import ModelEntry
from vllm_harness.defects.entry import Defect, DefectClass
from vllm_harness.defects.registry import load_defects
from vllm_harness.defects.repro.table import Table
from vllm_harness.extras.upstream import measured
from vllm_harness.testing import options

ROOT = Path(__file__).parents[2]
INCLUDED = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "SECURITY.md": "explanation/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
}
_LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
_OWN_ADDRESS = re.compile(r'rel=["\']?(?:canonical|prev|next)')
log = logging.getLogger("mkdocs.hooks.generated")


def pages() -> dict[str, str]:
    """Every generated page: its path in the manual and its Markdown."""
    included = {page: _relinked((ROOT / name).read_text()) for name, page in INCLUDED.items()}
    reference = {
        "commands": commands_page(),
        "pytest": pytest_page(),
        "models": models_page(),
        "defects": defects_page(),
        "upstream-tests": upstream_page(),
    }
    return included | {f"reference/{name}.md": text for name, text in reference.items()}


def _relinked(text: str) -> str:
    """A document of the root with its links to other documents and pages as links between pages."""
    for name, page in INCLUDED.items():
        text = text.replace(f"]({name})", f"](../{page})")
    return text.replace("](docs/", "](../")


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages to those of the folder."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Warns, which fails a strict build, of what a page would load from elsewhere."""
    for tag in loaded_from_elsewhere(output):
        log.warning("%s loads from elsewhere: %s", page.file.src_path, tag)
    return output


def loaded_from_elsewhere(html: str) -> list[str]:
    """The tags of a page by which a browser would load something from another host."""
    return [tag for tag in _LOADED.findall(html) if not _OWN_ADDRESS.search(tag)]


def commands_page() -> str:
    """The commands with their arguments and options, from the typer app."""
    command = typer.main.get_command(app)
    return "\n".join(["# Commands", "", *_command("vllm-harness", command, None)])


def _command(name: str, command: Any, parent: typer.Context | None) -> Iterator[str]:
    context = typer.Context(command, info_name=name.split()[-1], parent=parent)
    if parent is not None:
        yield from (f"## `{name}`", "", inspect.cleandoc(command.help or ""), "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"Usage: `{name} {usage}`", "")
    rows = [
        _row(parameter, context) for parameter in command.params if not getattr(parameter, "hidden", False)
    ]
    yield from _table(("argument or option", "what it is"), rows)
    for subcommand in getattr(command, "commands", {}).values():
        if not subcommand.hidden:
            yield from _command(f"{name} {subcommand.name}", subcommand, context)


def _row(parameter: Any, context: typer.Context) -> tuple[str, str]:
    record = parameter.get_help_record(context)
    if record is None:
        return f"`{parameter.make_metavar(context)}`", getattr(parameter, "help", None) or ""
    return f"`{record[0]}`", record[1]


def pytest_page() -> str:
    """The plugin's fixtures, options and markers."""
    given = [(f"`{name}`", str(settings["help"])) for name, settings in options.OPTIONS.items()]
    settings = [(f"`{name}`", text) for name, text in options.INI.items()]
    markers = [
        (f"`{name}`", text) for name, _, text in (marker.partition(": ") for marker in options.MARKERS)
    ]
    return "\n".join(
        [
            "# The pytest plugin",
            "",
            *("## Fixtures", "", *_table(("fixture", "what it gives"), _fixtures())),
            *("## Options", "", *_table(("option", "what it sets"), given)),
            *("## Settings of the ini file", "", *_table(("setting", "what it sets"), settings)),
            *("## Markers", "", *_table(("marker", "the test"), markers)),
        ]
    )


def _fixtures() -> list[tuple[str, str]]:
    """The fixtures of this package, as pytest lists them in a project that has nothing of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "--fixtures", f"--rootdir={folder}", "-c", "/dev/null"]
        listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    ours = re.findall(r"^-+ fixtures defined from vllm_harness\S* -+\n(.*?)(?=^[-=])", listed, re.M | re.S)
    found = re.findall(r"^(\w+).* -- .*\n((?:    .*\n|\n)+)", "\n".join(ours), re.M)
    return [(f"`{name}`", " ".join(text.split())) for name, text in found]


def models_page() -> str:
    """The keys of a model entry, from its pydantic model."""
    lines = [
        "# models.yaml",
        "",
        "The only top-level key is `models`, a mapping of names to entries. An unknown key is an error that",
        "names the file, the line and the key.",
        "",
    ]
    for model in _models(ModelEntry):
        lines += [f"## {model.__name__}", "", *_keys(model)]
    return "\n".join(lines)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    text, _, attributes = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    described = _described(attributes)
    yield from (text.strip(), "")
    rows = [
        (f"`{name}`", _written(field.annotation), _default(field), described.get(name) or _summary(field))
        for name, field in model.model_fields.items()
        if (model, name) != (ModelEntry, "name")
    ]
    yield from _table(("key", "type", "default", "what it is"), rows)


def defects_page() -> str:
    """Every entry of the registry, and which version shows it."""
    every, table = load_defects(), Table.read()
    defects = {key: defect for key, defect in every.items() if not defect.product}
    versions = [version.removesuffix(".0") for version in table.versions]
    lines = [
        "# Known defects of vLLM",
        "",
        f"{len(defects)} entries. **x**: the version shows it; ·: it is right; -: it lacks the parser, the",
        "flag or the API; ?: it answers in a third way; empty: not measured. `vllm-harness defects show ID`",
        "says all that is known of one, and `vllm-harness repro ID` shows it.",
        "",
    ]
    for kind in get_args(DefectClass):
        rows = [_defect(each, table) for each in defects.values() if each.kind == kind]
        lines += [f"## {kind.capitalize()}", ""]
        lines += _table(("id", "what goes wrong", "upstream", *versions), rows)
    of_gateways = [defect for defect in every.values() if defect.product]
    lines += ["## Gateways", "", "[Check a gateway](../how-to/gateway.md) says how they were found.", ""]
    lines += _table(
        ("id", "product", "versions", "what goes wrong", "upstream"), list(map(_of_gateway, of_gateways))
    )
    return "\n".join(lines)


def upstream_page() -> str:
    """What runs of vLLM's own tests measured."""
    lines = [
        "# Runs of vLLM's own tests",
        "",
        "As `vllm-harness upstream run` measured them;",
        "[Run vLLM's own tests](../how-to/upstream-tests.md) says what runs.",
        "`vllm-harness upstream table RUN...` prints the same of another run.",
        "",
    ]
    return "\n".join([*lines, *map(measured.as_markdown, measured.read())])


def _defect(defect: Defect, table: Table) -> tuple[str, ...]:
    letters = table.verdicts.get(defect.id, "").ljust(len(table.versions))
    cells = ({"x": "**x**", ".": "·", " ": ""}.get(letter, letter) for letter in letters)
    return f"`{defect.id}`", _one_line(defect.title), defect.upstream.reference or "", *cells


def _of_gateway(defect: Defect) -> tuple[str, ...]:
    reference = defect.upstream.reference or ""
    return f"`{defect.id}`", defect.product, defect.versions, _one_line(defect.title), reference


def _one_line(text: str) -> str:
    """A text of the registry in a cell: what looks like HTML stays text."""
    return " ".join(text.split()).replace("<", "&lt;")


def _described(attributes: str) -> dict[str, str]:
    """What a docstring says of each attribute: `name, other: text`, with further lines indented."""
    found = {}
    for entry in re.split(r"\n(?=    \w)", "\n" + attributes):
        names, _, text = entry.strip().partition(": ")
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, and the models that its fields have."""
    yield model
    seen = {model}
    for field in model.model_fields.values():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
                seen.add(part)
                yield part


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _summary(field: FieldInfo) -> str:
    """The first line about the models of a field."""
    models = [
        part for part in _parts(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)
    ]
    return " ".join((model.__doc__ or "").splitlines()[0] for model in models)


def _written(annotation: Any) -> str:
    arguments = [part for part in get_args(annotation) if part not in (Ellipsis, type(None))]
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is UnionType:
        return " or ".join(map(_written, arguments))
    if origin in (tuple, frozenset, list):
        return f"a list of {_written(arguments[0])}"
    if origin is dict:
        return f"a mapping of {' to '.join(map(_written, arguments))}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {str: "text", bool: "true or false", int: "a whole number", float: "a number"}.get(
        annotation, "any"
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ((), {}, frozenset()) or isinstance(value, BaseModel):
        return ""
    return f"`{', '.join(value) if isinstance(value, tuple) else value}`"


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        yield f"| {' | '.join(headings)} |"
        yield f"|{'---|' * len(headings)}"
        for row in rows:
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |"
        yield ""
