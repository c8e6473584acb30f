"""`vllm-harness cassette convert`: converts a recorded conversation into another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vllm_harness._cassettes.reading import read
from vllm_harness._cassettes.writing import check_writable, write
from vllm_harness.cli.served import redactor
from vllm_harness.extras.foreign.turns import written


def convert(
    file: Annotated[Path, typer.Argument(help="A cassette, an agentic-api or VCR recording, or a HAR file.")],
    output: Path,
    format: Literal["cassette", "turns"] = "cassette",
) -> None:
    """Write a recorded conversation in another format, without secrets.

    `turns` is the format of agentic-api.
    """
    check_writable(output)
    cassette = read(file).cassette
    if format == "turns":
        output.write_text(written(cassette, redactor()))
    else:
        write(cassette, output, redactor())
    print(f"{output}: {cassette.count} exchanges")
