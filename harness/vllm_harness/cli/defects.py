"""`vllm-harness defects`: what is known to be wrong in vLLM, one entry for each root cause."""

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
from vllm_harness._terminal.tables import plain_console, show_table
from vllm_harness.cli.options import AS_JSON

app = typer.Typer(help="List the known defects of vLLM.")
FOLDER = Annotated[
    Path | None, typer.Option("--folder", help="A folder with further entries, ID.yaml for each.")
]


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    kind: Annotated[DefectClass | None, typer.Option("--class", help="Only those of this class.")] = None,
    api: Annotated[DefectApi | None, typer.Option(help="Only those that show in this API.")] = None,
    model: Annotated[str, typer.Option(help="Only those that this model entry shows.")] = "",
    parser: Annotated[str, typer.Option(help="Only those of this parser, or of a family with it.")] = "",
    vllm: Annotated[str, typer.Option(help="Only those of this version of vLLM, such as 0.32.0.")] = "",
    component: Annotated[str, typer.Option(help="Only those of files of vLLM with this in their path.")] = "",
    unreported: Annotated[
        bool, typer.Option("--unreported", help="Only those not reported upstream.")
    ] = False,
    product: Annotated[
        str, typer.Option(help="Those of a gateway in the place of vLLM's: litellm, vllm-router, ...")
    ] = "",
    folder: FOLDER = None,
    as_json: AS_JSON = False,
) -> None:
    """List the known defects of vLLM, or of a gateway."""
    if context.invoked_subcommand:
        return
    _check(vllm)
    chosen = [
        defect
        for defect in load_defects(folder).values()
        if defect.product == product
        and kind in (None, defect.kind)
        and (api is None or api in defect.apis)
        and (not model or not defect.models or model in defect.models)
        and (not parser or parser == defect.parser or parser in defect.families)
        and (not vllm or defect.holds_for(vllm))
        and any(component in place for place in defect.component or ("",))
        and not (unreported and defect.upstream.reference)
    ]
    if as_json:
        print(json.dumps([_plain(defect) for defect in chosen], indent=2))
        return
    headings = ("id", "class", "versions", "upstream", "what goes wrong")
    show_table(plain_console(), headings, [_row(defect) for defect in chosen])
    print("1 defect" if len(chosen) == 1 else f"{len(chosen)} defects")


@app.command()
def show(
    defect_id: Annotated[str, typer.Argument(help="The id of the entry, such as vllm-46940.")],
    folder: FOLDER = None,
    as_json: AS_JSON = False,
) -> None:
    """Show all that is known of a defect: request, expected, actual, where in vLLM, and upstream."""
    plain = _plain(find(defect_id, load_defects(folder)))
    if as_json:
        print(json.dumps(plain, indent=2))
    else:
        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100), end="")


def _check(version: str) -> None:
    try:
        Version(version or "0")
    except InvalidVersion as error:
        raise UsageError(f"--vllm: {version!r} is not a version", hint="write it as 0.32.0") from error


def _row(defect: Defect) -> tuple[str, ...]:
    upstream = defect.upstream
    reference = f"{upstream.reference} {upstream.state or ''}".strip() if upstream.reference else "-"
    return defect.id, defect.kind, defect.versions, reference, defect.title


def _plain(defect: Defect) -> dict[str, object]:
    """The entry as its file has it, without what it does not say."""
    return defect.model_dump(mode="json", by_alias=True, exclude_defaults=True)
