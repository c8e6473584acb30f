"""A hook of mkdocs: generates pages from the code, and checks that no page loads anything from another host.

`reference/commands.md` comes from the command line, `reference/python.md` from the docstrings of the public
names of `vllm_harness`, `reference/pytest.md` from the plugin, `reference/models.md` from the schema of
models.yaml, `reference/defects.md` from the registry of defects and its measurements,
`reference/upstream-tests.md` from the measured runs of vLLM's own tests, and `reference/templates.md` from
the pairs of dialects and templates. The documents in the repository's root become pages too.
"""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import vllm_harness
from vllm_harness._configuration.model_entries import ModelEntry
from vllm_harness._defects.entry import Defect, DefectClass
from vllm_harness._defects.registry import load_defects
from vllm_harness._scripted.families import Family, load_families
from vllm_harness._testing import options
from vllm_harness.cli.main import app
from vllm_harness.cli.option_table import OPTIONS
from vllm_harness.extras.templates.pairs import Pair, load_pairs
from vllm_harness.extras.triage.table import Table
from vllm_harness.extras.upstream import measured

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
    """The Markdown of each generated page, by its path in the manual."""
    included = {page: _relinked((ROOT / name).read_text()) for name, page in INCLUDED.items()}
    reference = {
        "commands": commands_page(),
        "python": python_page(),
        "pytest": pytest_page(),
        "models": models_page(),
        "defects": defects_page(),
        "upstream-tests": upstream_page(),
        "templates": templates_page(),
    }
    return included | {f"reference/{name}.md": text for name, text in reference.items()}


def _relinked(text: str) -> str:
    """A document of the root, with its links to other documents turned into links between pages."""
    for name, page in INCLUDED.items():
        text = text.replace(f"]({name})", f"](../{page})")
    return text.replace("](docs/", "](../")


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages to the pages of the folder."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Warns of what a page would load from another host; a warning fails a strict build."""
    for tag in loaded_from_elsewhere(output):
        log.warning("%s loads from elsewhere: %s", page.file.src_path, tag)
    return output


def loaded_from_elsewhere(html: str) -> list[str]:
    """The tags of a page that make a browser load something from another host."""
    return [tag for tag in _LOADED.findall(html) if not _OWN_ADDRESS.search(tag)]


def commands_page() -> str:
    """The page of the commands, from the typer app."""
    command = typer.main.get_command(app)
    lines = ["# Commands", "", *_command("vllm-harness", command, None)]
    return "\n".join([*lines, "## All options", "", *_options(command)])


def _options(root: Any) -> Iterator[str]:
    """The table of all options, with the commands that have each."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, command in _commands("", root):
        for parameter in command.params:
            users[parameter.opts[0]].append(f"`{name}`")
    rows = [
        (f"`--{name} {row.metavar}`".replace(" `", "`"), row.help, ", ".join(users[f"--{name}"]))
        for name, row in OPTIONS.items()
        if row.panel != "hidden"
    ]
    yield from _table(("option", "what it is", "used by"), rows)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name or "vllm-harness", command
    for inner, each in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {inner}".strip(), each)


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


def python_page() -> str:
    """The page of the public names, below the headings and examples of the package's docstring."""
    parts = _parts_of(inspect.cleandoc(vllm_harness.__doc__ or ""))
    lines = ["# Python interface", "", parts.pop("").strip(), "", _STABILITY, ""]
    missing = [name for name in vllm_harness.__all__ if not name.startswith("_")]
    for heading, example in [*parts.items(), ("Further names:", "")]:
        imported = _imported(example) if example else set(missing)
        names = [name for name in missing if name in imported]
        missing = [name for name in missing if name not in imported]
        if not names:
            continue
        title, more = re.fullmatch(r"([^,;]*)[,;]? ?(.*):", " ".join(heading.split())).groups()  # type: ignore[union-attr]
        lines += [f"## {title}", ""]
        lines += [f"{more[0].upper()}{more[1:]}.", ""] if more else []
        lines += _example(example) if example else []
        for name in names:
            lines += _documented(name, getattr(vllm_harness, name))
    return "\n".join(lines)


def _parts_of(docstring: str) -> dict[str, str]:
    """The examples of a docstring, by their headings, which end with a colon; "" has the introduction."""
    parts, heading = {"": ""}, ""
    for paragraph in docstring.split("\n\n"):
        if paragraph.endswith(":") and not paragraph.startswith((" ", ">>>")):
            heading = paragraph
            parts[heading] = ""
        else:
            parts[heading] += paragraph + "\n\n"
    return parts


def _imported(example: str) -> set[str]:
    """The names that an example imports from the package."""
    found = re.findall(r"^ *(?:>>> )?from vllm_harness import (.*)$", example, re.M)
    return {name for names in found for name in names.split(", ")}


def _example(text: str) -> Iterator[str]:
    language = "pycon" if text.lstrip().startswith(">>>") else "python"
    yield from (f"```{language}", inspect.cleandoc("\n" + text).strip(), "```", "")


_STABILITY = "[What is public, and how stable it is](stability.md) says what may change."
_SECTION = re.compile(r"\n?^(Args|Attributes|Example|Raises|Returns|Yields):\n", re.M)
_TABLES = {"Args": "argument", "Attributes": "attribute", "Raises": "error"}


def _documented(name: str, what: Any) -> Iterator[str]:
    """A class or a function: its signature, its docstring, and the members of a class."""
    yield from (f"### `{name}`", "")
    if not isinstance(what, type) or _is_made_by_users(what):
        yield from _example(_signature(name, what))
    yield from _docstring(what)
    if isinstance(what, type):
        members = list(_members(what))
        rows = [(f"`{key}`", _first(member)) for key, member in members if isinstance(member, property)]
        yield from _table(("property", "what it is"), rows)
        for key, member in members:
            if not isinstance(member, property):
                function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                fixture = re.match(r"The fixture `(\w+)`", what.__doc__ or "")
                shown = fixture[1] if fixture and key == "__call__" else f"{name}.{key}"
                yield from (f"#### `{shown}`", "")
                yield from _example(_signature(shown, function, bound=not isinstance(member, staticmethod)))
                yield from _docstring(function)


def _is_made_by_users(what: type) -> bool:
    """Whether users construct objects of a class: not an enum's, a protocol's, or what a fixture gives."""
    return not (issubclass(what, Enum) or getattr(what, "_is_protocol", False) or "__call__" in vars(what))


def _members(of: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class and its bases in this package."""
    seen = set()
    for each in of.__mro__:
        if each.__module__.partition(".")[0] != "vllm_harness":
            continue
        for key, member in vars(each).items():
            is_offered = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(
                member
            )
            if is_offered and (key == "__call__" or not key.startswith("_")) and key not in seen:
                seen.add(key)
                yield key, member


def _signature(name: str, what: Callable[..., Any], *, bound: bool = False) -> str:
    """The signature with the types of the source; a long one has a line for each parameter."""
    signature = inspect.signature(what)
    written = _annotations(what)
    parameters = [_parameter(each, written) for each in signature.parameters.values()][1 if bound else 0 :]
    kinds = [each.kind for each in signature.parameters.values()][1 if bound else 0 :]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = (
        ""
        if isinstance(what, type) or signature.return_annotation in (None, "None")
        else signature.return_annotation
    )
    end = f" -> {returned}" if isinstance(returned, str) and returned else ""
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){end}"])


def _annotations(what: Any) -> dict[str, str]:
    """The annotations of a class's fields, as in the source."""
    classes = reversed(what.__mro__) if isinstance(what, type) else ()
    return {
        key: value
        for each in classes
        if each.__module__.partition(".")[0] == "vllm_harness"
        for key, value in inspect.get_annotations(each).items()
        if isinstance(value, str)
    }


def _parameter(parameter: inspect.Parameter, written: dict[str, str]) -> str:
    stars = (
        "**"
        if parameter.kind is parameter.VAR_KEYWORD
        else "*"
        if parameter.kind is parameter.VAR_POSITIONAL
        else ""
    )
    annotation = (
        parameter.annotation if isinstance(parameter.annotation, str) else written.get(parameter.name)
    )
    text = f"{stars}{parameter.name}" + (f": {annotation}" if annotation else "")
    if parameter.default is inspect.Parameter.empty:
        return text
    value = parameter.default
    default = f'"{value}"' if type(value) is str else repr(value)
    if "<" in default or len(default) > 40:
        default = "..."
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _docstring(what: Any) -> Iterator[str]:
    """The description in a docstring, and a table for each of its sections."""
    first, *sections = _SECTION.split(inspect.getdoc(what) or "")
    if first.strip():
        yield from (first.strip(), "")
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        if title == "Example":
            yield from _example(text)
        elif title in _TABLES:
            rows = [(_names(names), described) for names, described in _entries(text)]
            yield from _table((_TABLES[title], "what it is" if title != "Raises" else "when"), rows)
        else:
            yield from (f"{title}: {' '.join(text.split())}", "")


def _entries(section: str) -> Iterator[tuple[str, str]]:
    for entry in re.split(r"\n(?=    \S)", "\n" + section.rstrip()):
        names, _, text = entry.strip().partition(": ")
        if names:
            yield names, " ".join(text.split()).replace("<", "&lt;")


def _names(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _first(member: Any) -> str:
    """The first paragraph of a docstring, as a cell."""
    return " ".join((inspect.getdoc(member) or "").partition("\n\n")[0].split()).replace("<", "&lt;")


def pytest_page() -> str:
    """The page of the plugin: fixtures, options and markers."""
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
    """The fixtures of this package, as pytest lists them in an empty project."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "--fixtures", f"--rootdir={folder}", "-c", "/dev/null"]
        listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    ours = re.findall(r"^-+ fixtures defined from vllm_harness\S* -+\n(.*?)(?=^[-=])", listed, re.M | re.S)
    found = re.findall(r"^(\w+).* -- .*\n((?:    .*\n|\n)+)", "\n".join(ours), re.M)
    return [(f"`{name}`", " ".join(text.split())) for name, text in found]


def models_page() -> str:
    """The page of the keys of a model entry, from its pydantic model."""
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
    """The page of the known defects, with the versions that show each."""
    every, table = load_defects(), Table.read()
    defects = {key: defect for key, defect in every.items() if not defect.product}
    versions = [version.removesuffix(".0") for version in table.versions]
    lines = [
        "# Known defects of vLLM",
        "",
        f"{len(defects)} entries. **x**: the version shows it; ·: it is right; -: it lacks the parser, the",
        "flag or the API; ?: it answers in a third way; empty: not measured. `vllm-harness defects show ID`",
        "prints an entry, and `vllm-harness repro ID` reproduces the defect.",
        "",
    ]
    for kind in get_args(DefectClass):
        rows = [_defect(each, table) for each in defects.values() if each.kind == kind]
        lines += [f"## {kind.capitalize()}", ""]
        lines += _table(("id", "what goes wrong", "upstream", *versions), rows)
    of_gateways = [defect for defect in every.values() if defect.product]
    lines += ["## Gateways", "", "[Check a gateway](../how-to/gateway.md) says how to find them.", ""]
    lines += _table(
        ("id", "product", "versions", "what goes wrong", "upstream"), list(map(_of_gateway, of_gateways))
    )
    return "\n".join(lines)


def upstream_page() -> str:
    """The page of the measured runs of vLLM's own tests."""
    lines = [
        "# Runs of vLLM's own tests",
        "",
        "Measured by `vllm-harness upstream run`;",
        "[Run vLLM's own tests](../how-to/upstream-tests.md) says which tests run.",
        "`vllm-harness upstream table RUN...` prints the tables of other runs.",
        "",
    ]
    return "\n".join([*lines, *map(measured.as_markdown, measured.read())])


def templates_page() -> str:
    """The page of the families: which template shows what a model of the family writes, and what differs."""
    pairs = load_pairs()
    families = [(family, pairs.get(family.dialect)) for family in load_families().values()]
    proven = [(family.dialect, pair.template) for family, pair in families if pair and pair.proves]
    verified, templates = map(len, map(set, zip(*proven, strict=True)))
    lines = [
        "# What models really write",
        "",
        f"{len(proven)} of {len(families)} families are verified, {verified} dialects by {templates}",
        "templates; a family without a template of its vendor, or a copy, is unverified.",
        "`vllm-harness models dialects --check` compares all in drawn turns, as [Hold a dialect to its",
        "template](../how-to/templates.md) says.",
        "",
    ]
    lines += _table(
        ("family", "template", "provenance", "tokenizer", "verified", "what differs"),
        [_family_of_template(family, pair) for family, pair in families],
    )
    differing = [(name, pair) for name, pair in pairs.items() if pair.differences]
    lines += ["## Differences", ""]
    lines += _table(
        ("dialect", "model", "what differs", "why the dialect stays", "fault of the template"),
        [
            (name, pair.model, each.name, _one_line(each.reason), "yes" if each.fault else "")
            for name, pair in differing
            for each in pair.differences
        ],
    )
    return "\n".join(lines)


def _family_of_template(family: Family, pair: Pair | None) -> tuple[str, ...]:
    tokenizer = family.tokenizer or "synthetic"
    if pair is None:
        return f"`{family.name}`", "", "", tokenizer, "unverified", ""
    differences = ", ".join(difference.name for difference in pair.differences)
    verified = "yes" if pair.proves else "unverified"
    return f"`{family.name}`", pair.template, pair.provenance, tokenizer, verified, _one_line(differences)


def _defect(defect: Defect, table: Table) -> tuple[str, ...]:
    letters = table.verdicts.get(defect.id, "").ljust(len(table.versions))
    cells = ({"x": "**x**", ".": "·", " ": ""}.get(letter, letter) for letter in letters)
    return f"`{defect.id}`", _one_line(defect.title), defect.upstream.reference or "", *cells


def _of_gateway(defect: Defect) -> tuple[str, ...]:
    reference = defect.upstream.reference or ""
    return f"`{defect.id}`", defect.product, defect.versions, _one_line(defect.title), reference


def _one_line(text: str) -> str:
    """A text of the registry as a cell, in which HTML is escaped."""
    return " ".join(text.split()).replace("<", "&lt;")


def _described(attributes: str) -> dict[str, str]:
    """The texts of a docstring's attributes: `name, other: text`, with further lines indented."""
    texts = {}
    for entry in re.split(r"\n(?=    \w)", "\n" + attributes):
        names, _, text = entry.strip().partition(": ")
        for name in names.split(", "):
            texts[name] = " ".join(text.split())
    return texts


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, and the models of its fields."""
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
    """The first lines of the docstrings of a field's models."""
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
