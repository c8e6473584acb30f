"""`vllm-harness defects`: lists the known defects of vLLM, one entry for each root cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from packaging.version import InvalidVersion, Version

from vllm_harness._defects.entry import Defect, DefectApi, DefectClass
from vllm_harness._defects.registry import find, load_defects
from vllm_harness._errors import UsageError
from vllm_harness._scripted.families import unverified
from vllm_harness._terminal.tables import plain_console, show_table

app = typer.Typer()


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    class_: DefectClass | None = None,
    api: DefectApi | None = None,
    model: str = "",
    parser: str = "",
    vllm: str = "",
    component: str = "",
    unreported: bool = False,
    product: str = "",
    folder: Path | None = None,
    json_: bool = False,
) -> None:
    """List the known defects of vLLM, or with --product those of a gateway.

    Only the defects that match all the other options are listed.
    """
    if context.invoked_subcommand:
        return
    gateway, _, version = product.partition("==")
    _check("--vllm", vllm)
    _check("--product", version)
    chosen = [
        defect
        for defect in load_defects(folder).values()
        if defect.product == gateway
        and class_ in (None, defect.kind)
        and (api is None or api in defect.apis)
        and (not model or not defect.models or model in defect.models)
        and (not parser or parser == defect.parser or parser in defect.families)
        and (not (vllm or version) or defect.holds_for(version or vllm))
        and any(component in place for place in defect.component or ("",))
        and not (unreported and defect.upstream.reference)
    ]
    if json_:
        print(json.dumps([_plain(defect) for defect in chosen], indent=2))
        return
    headings = ("id", "class", "versions", "upstream", "what goes wrong")
    show_table(plain_console(), headings, [_row(defect) for defect in chosen])
    print("1 defect" if len(chosen) == 1 else f"{len(chosen)} defects")


@app.command()
def show(
    defect_id: Annotated[str, typer.Argument(help="The id of the entry, such as vllm-46940.")],
    folder: Path | None = None,
    json_: bool = False,
) -> None:
    """Show a known defect: its request, expected and actual answer, code in vLLM, and upstream report."""
    plain = _plain(find(defect_id, load_defects(folder)))
    if json_:
        print(json.dumps(plain, indent=2))
    else:
        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100), end="")


def _check(option: str, version: str) -> None:
    try:
        Version(version or "0")
    except InvalidVersion as error:
        raise UsageError(f"{option}: {version!r} is not a version", hint="write it as 0.32.0") from error


def _row(defect: Defect) -> tuple[str, ...]:
    upstream = defect.upstream
    reference = f"{upstream.reference} {upstream.state or ''}".strip() if upstream.reference else "-"
    title = defect.title + " (unverified)" * unverified(*defect.families)
    return defect.id, defect.kind, defect.versions, reference, title


def _plain(defect: Defect) -> dict[str, object]:
    """The entry as it is written in its file, without default values, and which families are unverified."""
    plain = defect.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    families = list(filter(unverified, defect.families))
    return plain | ({"unverified": families} if families else {})
