"""`vllm-harness weights` accepts intact weights, and finds a damaged matrix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_harness._environments import assets

pytestmark = [pytest.mark.vllm_slow, pytest.mark.timeout(900)]

MATRIX = "model.layers.15.mlp.down_proj.weight"


def check_weights(*options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "vllm_harness.cli.start",
        "weights",
        "smollm2-135m",
        "--device",
        "cpu",
        *options,
    ]
    answer = subprocess.run(command, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True)
    print(answer.stdout, answer.stderr)
    return answer


def damaged(folder: Path, damage: Callable[[array[int]], None]) -> Path:
    """Copies the checkpoint; `damage` changes the values of one matrix, passed as 16-bit integers."""
    original = assets.fetch("smollm2-135m")
    for path in original.iterdir():
        if path.name != "model.safetensors":
            (folder / path.name).symlink_to(path)
    content = bytearray((original / "model.safetensors").read_bytes())
    base = 8 + int.from_bytes(content[:8], "little")
    start, end = (base + offset for offset in json.loads(content[8:base])[MATRIX]["data_offsets"])
    values = array("H", bytes(content[start:end]))
    damage(values)
    content[start:end] = values.tobytes()
    (folder / "model.safetensors").write_bytes(content)
    return folder


def last_bits(values: array[int]) -> None:
    """Flips the last bit of each value, which changes the value by less than one percent."""
    for place in range(len(values)):
        values[place] ^= 1


def reverse(values: array[int]) -> None:
    values.reverse()


def test_undamaged_weights_agree() -> None:
    answer = check_weights()
    assert answer.returncode == 0
    rows = {row[0]: row for row in re.findall(r"^(\w+) .*? (\d+) of 20 .* (\w+)$", answer.stdout, re.M)}
    assert rows["float32"] == ("float32", "20", "agrees")
    assert set(rows) == {"float32", "bfloat16", "float16"}
    assert "wrong" not in answer.stdout


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_reversed_matrix_is_wrong(tmp_path: Path, dtype: str) -> None:
    answer = check_weights("--dtype", dtype, "--weights", str(damaged(tmp_path, reverse)))
    assert answer.returncode == 1
    assert re.search(rf"^{dtype} .* wrong$", answer.stdout, re.M)


def test_a_matrix_off_by_its_last_bits_is_wrong_in_float32(tmp_path: Path) -> None:
    answer = check_weights("--dtype", "float32", "--weights", str(damaged(tmp_path, last_bits)))
    assert answer.returncode == 1
    assert re.search(r"^float32 .* wrong$", answer.stdout, re.M)
