"""An asset may come from a source distribution, of which only its files are kept. The index is local."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from vllm_harness._environments import assets, pins
from vllm_harness._environments.sources import AssetError, ChecksumError

CONTENT = b"{{ messages }}\n"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("some_thing-1.0/templates/a.jinja")
        member.size = len(CONTENT)
        tar.addfile(member, io.BytesIO(CONTENT))
    return packed.getvalue()


@pytest.fixture(scope="module")
def packed() -> bytes:
    return archive()


@pytest.fixture
def index(packed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index with one source distribution; yields the folder of the definitions of assets."""
    listed = {"filename": "some_thing-1.0.tar.gz", "url": "../files/a", "hashes": {"sha256": sha(packed)}}
    page = json.dumps({"files": [listed]}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = {"/simple/some-thing/": page, "/simple/files/a": packed}.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setattr(assets, "data_path", lambda name: tmp_path)
    yield tmp_path
    server.shutdown()
    server.server_close()


def define(folder: Path, package: str, whole: str, file: str) -> None:
    source = {
        "kind": "sdist",
        "package": package,
        "sha256": whole,
        "files": [{"path": "templates/a.jinja", "sha256": file}],
    }
    entry = {"thing": {"description": "a thing", "sources": [source]}}
    (folder / "assets.yaml").write_text(yaml.safe_dump(entry))


def test_the_files_of_a_source_distribution_are_kept_without_it(
    index: Path, packed: bytes, cache: Path
) -> None:
    define(index, "some-thing==1.0", sha(packed), sha(CONTENT))
    folder = assets.fetch("thing")
    assert (folder / "a.jinja").read_bytes() == CONTENT
    assert not [path for path in cache.rglob("*") if "tar" in path.name]
    fetched = assets.cached("thing")
    assert fetched is not None
    assert fetched.source == "sdist some-thing==1.0"


def test_another_archive_or_file_is_refused(index: Path, packed: bytes, cache: Path) -> None:
    define(index, "some-thing==1.0", "0" * 64, sha(CONTENT))
    with pytest.raises(ChecksumError, match="sha256 expected 0000"):
        assets.fetch("thing")
    define(index, "some-thing==1.0", sha(packed), "0" * 64)
    with pytest.raises(ChecksumError, match=r"a\.jinja from sdist some-thing==1\.0"):
        assets.fetch("thing")


def test_a_version_that_the_index_lacks(index: Path, cache: Path) -> None:
    define(index, "some-thing==2.0", "0" * 64, sha(CONTENT))
    with pytest.raises(AssetError, match=r"does not have some_thing-2\.0\.tar\.gz: it lists no such file"):
        assets.fetch("thing")


def test_a_source_distribution_is_pinned(index: Path, packed: bytes) -> None:
    source = pins.pinned("sdist:some-thing==1.0", ["templates/a.jinja"], lambda _: None)
    assert (source.kind, source.address) == ("sdist", "sdist:some-thing==1.0")
    assert source.files[0].sha256 == sha(CONTENT)
    assert pins.entry(source).count(sha(packed)) == 1
