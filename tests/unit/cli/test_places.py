"""Commands where folders, disks or streams cannot be used: an exit code and a message, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.places import NO_MOUNTS, Commands, Ended, Place, can_mount
from tests.unit.other_users.nobody import given_to_nobody, needs_root
from tests.unit.report.runs import every_outcome, run_in

STATE = {"VLLM_HARNESS_STATE": "{tmp}/state"}
HOMES = {
    "missing home": (Place.of_home("shut/none/home", unwritable="shut"), 2, "Permission denied"),
    "unwritable home": (Place.of_home("home", unwritable="home"), 2, "Permission denied"),
    "home that may not be entered": (Place.of_home("home", closed="home"), 2, "Permission denied"),
    "file as a home": (Place.of_home("home", file="home"), 2, "Not a directory"),
    "home on a read-only disk": (
        Place.of_home("home", disk="home", read_only=True),
        3,
        "Read-only file system",
    ),
    "home on a full disk": (
        Place.of_home("home", disk="home", full=True, inodes=1),
        3,
        "No space left on device",
    ),
}
CACHES = {
    "cache below a closed folder": (
        Place(STATE | {"VLLM_HARNESS_CACHE": "{tmp}/shut/cache"}, closed="shut"),
        2,
        "Permission denied",
    ),
    "file as a cache": (
        Place(STATE | {"VLLM_HARNESS_CACHE": "{tmp}/file"}, file="file"),
        2,
        "is not a folder",
    ),
}
STATES = {
    "state below a closed folder": (
        Place({"VLLM_HARNESS_STATE": "{tmp}/shut/state"}, closed="shut"),
        2,
        "Permission denied",
    ),
    "file as a state folder": (
        Place({"VLLM_HARNESS_STATE": "{tmp}/file"}, file="file"),
        2,
        "is not a folder",
    ),
}
FULL = Place({"VLLM_HARNESS_STATE": "{tmp}/disk"}, disk="disk", full=True)
USES_STATE = {
    "ps": "serve ps",
    "stop": "serve stop",
    "latest report": "report latest",
    "compare": "compare a b",
}
USES_CACHE = {
    "doctor": "doctor",
    "environments": "env list",
    "regression": "regression --parsers hermes --cases canonical",
    "serve": "serve qwen3 --lane scripted",
    "record": "cassette record etl-three-turns --model qwen3 --lane scripted -o etl.yaml",
    "repro": "repro vllm-46940",
}
USES_BOTH = {
    "scenario": "scenario run etl-three-turns --model qwen3 --lane scripted",
    "load": "load etl-three-turns --model qwen3 --lane scripted --requests 2",
}
USES_NONE = {
    "help": "--help",
    "models": "models",
    "defects": "defects show vllm-46940",
    "rules": "validate explain",
    "report": "report {tmp}/run --format markdown",
    "families": "regression families",
    "stories": "scenario stories",
}


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    """The process that runs the commands."""
    process = Commands()
    yield process
    process.close()


def _cases(places: dict[str, tuple[Place, int, str]], texts: dict[str, str]) -> Iterator[object]:
    """Each place with each command; all but one command of a place are slow together."""
    for row, (place, values) in enumerate(places.items()):
        for column, (name, text) in enumerate(texts.items()):
            marks = [pytest.mark.extra("load")] if name == "load" else []
            if column != row % len(texts):
                marks.append(pytest.mark.vllm_slow)
            yield pytest.param(*values, text, id=f"{place}-{name}", marks=marks)


def _run(commands: Commands, place: Place, tmp: Path, text: str) -> Ended:
    if place.disk and not can_mount():
        pytest.skip(NO_MOUNTS)
    if "{tmp}/run" in text:
        run_in(tmp / "run", every_outcome())
    ended = commands.run(place, tmp, *text.format(tmp=tmp).split())
    for path in tmp.iterdir():
        if path.is_dir():
            path.chmod(0o700)
    assert "Traceback" not in ended.stdout + ended.stderr, ended.stderr
    return ended


@pytest.mark.parametrize(
    ("place", "code", "words", "text"),
    [
        *_cases(HOMES, USES_STATE | USES_CACHE | USES_BOTH),
        *_cases(CACHES, USES_CACHE | USES_BOTH),
        *_cases(STATES, USES_STATE),
    ],
)
def test_a_folder_that_cannot_be_used_is_named(
    commands: Commands, place: Place, code: int, words: str, text: str, tmp_path: Path
) -> None:
    ended = _run(commands, place, tmp_path, text)
    message, hint = ended.stderr.splitlines()[-2:]
    assert ended.code == code
    assert message.startswith("error: ")
    assert str(tmp_path) in message
    assert words in message
    assert "VLLM_HARNESS_" in hint


@pytest.mark.parametrize(
    ("place", "_code", "_words", "text"), [*_cases(HOMES | STATES | {"full disk": (FULL, 0, "")}, USES_NONE)]
)
def test_a_command_that_needs_no_folder_of_its_own_works(
    commands: Commands, place: Place, _code: int, _words: str, text: str, tmp_path: Path
) -> None:
    ended = _run(commands, place, tmp_path, text)
    assert (ended.code, ended.stderr) == (0, "")


def test_a_full_disk_is_named(commands: Commands, tmp_path: Path) -> None:
    ended = _run(commands, FULL, tmp_path, "doctor")
    assert ended.code == 3
    assert f"error: cannot use the state folder {tmp_path}/disk: No space left on device\n" in ended.stderr


@needs_root
def test_a_state_folder_of_another_user_is_refused(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    given_to_nobody(tmp_path / "state")
    for text in USES_STATE.values():
        ended = _run(commands, Place(STATE), tmp_path, text)
        assert ended.code == 2
        assert "belongs to another user" in ended.stderr
        assert "VLLM_HARNESS_STATE" in ended.stderr


@pytest.mark.parametrize("text", USES_NONE.values(), ids=USES_NONE)
def test_standard_output_on_a_full_disk(commands: Commands, text: str, tmp_path: Path) -> None:
    ended = _run(commands, Place(stdout="/dev/full"), tmp_path, text)
    assert ended.code == 3
    assert ended.stderr == (
        "error: cannot use standard output: No space left on device\n  try: redirect it to another file\n"
    )


@pytest.mark.parametrize("text", USES_NONE.values(), ids=USES_NONE)
def test_a_reader_that_has_ended(commands: Commands, text: str, tmp_path: Path) -> None:
    ended = _run(commands, Place(stdout="pipe"), tmp_path, text)
    assert (ended.code, ended.stderr) == (141, "")


@pytest.mark.parametrize("text", USES_NONE.values(), ids=USES_NONE)
def test_closed_standard_output(commands: Commands, text: str, tmp_path: Path) -> None:
    ended = _run(commands, Place(stdout="closed"), tmp_path, text)
    assert (ended.code, ended.stderr) == (0, "")


@pytest.mark.parametrize("text", USES_NONE.values(), ids=USES_NONE)
def test_output_that_is_not_unicode(commands: Commands, text: str, tmp_path: Path) -> None:
    ended = _run(commands, Place(encoding="ascii"), tmp_path, text)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.isascii()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PYTHONIOENCODING": "ascii"}, b"\\uff5ctool"),
        ({"PYTHONIOENCODING": "latin-1:strict"}, b"\\uff5ctool"),
        ({"LC_ALL": "C"}, "｜tool".encode()),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b"\\uff5ctool"),
    ],
    ids=str,
)
def test_locales(variables: dict[str, str], words: bytes) -> None:
    command = [
        sys.executable,
        "-m",
        "vllm_harness.cli.start",
        "defects",
        "show",
        "deepseek-v3-drops-text-after-a-call-unstreamed",
    ]
    ended = subprocess.run(command, env=os.environ | variables, capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert words in ended.stdout


@pytest.mark.parametrize(("command", "code"), [("{} >&-", 0), ("{} 2>/dev/full", 0)])
def test_a_shell(command: str, code: int) -> None:
    module = f"{sys.executable} -m vllm_harness.cli.start validate explain"
    shell = ["bash", "-c", command.format(module)]
    ended = subprocess.run(shell, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_a_pipe_without_a_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "vllm_harness.cli.start", "validate", "explain"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
