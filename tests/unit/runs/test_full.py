"""A run folder that takes no more ends with a whole line, and can be read and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import End, Kind

FILL = """
import resource, sys
from pathlib import Path
from vllm_harness._errors import InfrastructureError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.header import new_header
from vllm_harness._runs.records import End, Kind

resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
with RunWriter.begin(Path(sys.argv[1]), new_header(Kind.LOAD, "full", None)) as writer:
    try:
        while True:
            writer.write(End(at=1.0, exit_code=0, stopped="x" * 300))
    except InfrastructureError as error:
        print(error.exit_code, error)
"""


def test_a_line_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = subprocess.run([sys.executable, "-c", FILL, str(folder)], capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout.startswith(f"3 cannot use the run folder {folder}: File too large")
    text = (folder / "records.jsonl").read_text()
    assert text.endswith("}\n")
    assert len(text) > 1000
    with RunWriter.resume(folder, new_header(Kind.LOAD, "full", None)) as writer:
        writer.write(End(at=2.0, exit_code=0, stopped=""))
    assert len(list(records(folder))) == len(text.splitlines()) + 1
