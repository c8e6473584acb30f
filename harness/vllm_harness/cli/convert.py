"""`vllm-harness cassette convert`: a recorded conversation from one form into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vllm_harness import _extensions as extensions
from vllm_harness._cassettes.reading import read
from vllm_harness._cassettes.writing import check_writable, write
from vllm_harness.cli.record import OUTPUT
from vllm_harness.cli.served import redactor


def convert(
    file: Annotated[Path, typer.Argument(help="A cassette, or a file of agentic-api, VCR or HAR.")],
    output: OUTPUT,
    form: Annotated[
        Literal["cassette", "turns"],
        typer.Option(help="What to write: a cassette, or agentic-api's `turns`."),
    ] = "cassette",
) -> None:
    """Write a recorded conversation in another form, without secrets."""
    check_writable(output)
    cassette = read(file).cassette
    if form == "turns":
        output.write_text(extensions.load(extensions.WRITE_TURNS, "--form turns")(cassette, redactor()))
    else:
        write(cassette, output, redactor())
    print(f"{output}: {cassette.count} exchanges")
