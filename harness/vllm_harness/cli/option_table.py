"""The table of all options of `vllm-harness`, and how a command gets its options from it.

`options.toml` has a row for each name, so that an option has the same type, help text and meaning on every
command. A parameter of a command is an option if the table has a row for it. The pytest plugin uses the same
names with the prefix `--vllm-`.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from vllm_harness._errors import UsageError

MANY = 8
"""A command with more options than this shows each in the help panel that its row names."""


@dataclass(frozen=True)
class OptionRow:
    """The definition of an option, which is the same on every command.

    Attributes:
        panel: the help panel on a command with many options; `hidden` hides the option.
        type: the type of one value; the values of a choice are in the help text, or differ by command.
        help: the help text.
        metavar: the name of the value in the help; empty for flags, and for choices that differ by command.
        short: a one-letter name.
        least: the smallest allowed number.
        needs: options of which at least one must be given as well.
    """

    panel: str
    type: Literal["flag", "text", "int", "float", "path", "choice"]
    help: str
    metavar: str = ""
    short: str = ""
    least: float | None = None
    needs: tuple[str, ...] = ()


def _rows() -> Iterator[tuple[str, OptionRow]]:
    text = Path(__file__).with_name("options.toml").read_text()
    for panel, rows in tomllib.loads(text).items():
        for name, row in rows.items():
            yield name, OptionRow(panel, **row)


OPTIONS: Mapping[str, OptionRow] = dict(_rows())


def option(name: str, *, many: bool = False, on: bool = False, panel: str | None = None, **more: Any) -> Any:
    """Creates the Typer option that a row of the table defines.

    Args:
        name: the name of the row.
        many: whether the option can be repeated.
        on: whether a flag is on by default, so that it has a `--no-` form.
        panel: the help panel, if not the first one.
        more: further settings of `typer.Option`.
    """
    row = OPTIONS[name]
    flags = [f"--{name}/--no-{name}" if on else f"--{name}", *([f"-{row.short}"] if row.short else [])]
    text = f"{row.help.removesuffix('.')}; repeatable." if many else row.help
    if row.metavar or row.type == "flag":
        more["metavar"] = row.metavar
    if row.least is not None:
        more["callback"] = _at_least(row.least)
    hidden, shown = row.panel == "hidden", row.type != "path"
    return typer.Option(*flags, help=text, rich_help_panel=panel, hidden=hidden, show_default=shown, **more)


def named(parameter: str) -> str:
    """The option name for a parameter, such as `api-key-env` for `api_key_env`, or `as` for `as_`."""
    return parameter.removesuffix("_").replace("_", "-")


def from_table(command: Callable[..., None]) -> Callable[..., None]:
    """Turns a command's parameters, and the fields of dataclass parameters, into options.

    Raises:
        KeyError: the table has no row for a parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    given = signature.parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in given if is_dataclass(each.annotation)}
    flat = [option for each in given for option in _flat(each)]
    options = {each.name for each in flat if _is_option(each.annotation)}
    shown = len(options) > MANY
    parameters = [_with_option(each, shown) if each.name in options else each for each in flat]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        _check_needs({named(name): values[name] for name in options})
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _flat(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yields a parameter, or if its type is a dataclass, a parameter for each field."""
    keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    if not is_dataclass(parameter.annotation):
        yield keyword
        return
    hints = get_type_hints(parameter.annotation)
    for each in fields(parameter.annotation):
        yield keyword.replace(name=each.name, default=each.default, annotation=hints[each.name])


def _is_option(annotation: Any) -> bool:
    return get_origin(annotation) is not Annotated and annotation is not typer.Context


def _with_option(parameter: inspect.Parameter, shown: bool) -> inspect.Parameter:
    kind, name = parameter.annotation, named(parameter.name)
    many = any(get_origin(each) is list for each in (kind, *get_args(kind)))
    panel = OPTIONS[name].panel if shown else None
    made = option(name, many=many, on=parameter.default is True, panel=panel)
    return parameter.replace(annotation=Annotated[kind, made])


def _at_least(least: float) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if value is not None and value < least:
            raise typer.BadParameter(f"{value} is less than {least}.")
        return value

    return checked


def _check_needs(values: Mapping[str, Any]) -> None:
    """Raises UsageError if an option is given without any of the options that it needs."""
    given = {name for name, value in values.items() if not (value is None or value is False or value == "")}
    for name in given:
        needs = [each for each in OPTIONS[name].needs if each in values]
        if needs and not given & {*needs}:
            raise UsageError(
                f"--{name} needs --{' or --'.join(needs)}", hint=f"add --{needs[0]}, or leave --{name} out"
            )
