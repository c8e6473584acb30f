"""Folders that another user made, or may write to, are refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.other_users.nobody import NOBODY, Nobody, given_to_nobody, needs_root, reachable_folder
from vllm_harness._files.folders import Purpose, UntrustedFolder, own_folder, private_folder, shared_folder
from vllm_harness._files.paths import cache_dir, state_dir
from vllm_harness._server import fork_server
from vllm_harness.cli.main import app

OURS = Purpose("the state folder", "VLLM_HARNESS_STATE")
KINDS = [own_folder, shared_folder, private_folder]


def mode_of(path: Path) -> int:
    """Returns the permission bits of a path."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_made_private_whatever_the_umask(kind: object, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = kind(tmp_path / "some" / "folder", OURS)  # type: ignore[operator]
    finally:
        os.umask(before)
    assert mode_of(made) == 0o700


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(kind: object, mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(UntrustedFolder) as caught:
        kind(tmp_path, OURS)  # type: ignore[operator]
    message = str(caught.value)
    assert caught.value.exit_code == 2
    for words in (
        str(tmp_path),
        f"mode {mode:04o}",
        f"(uid {os.geteuid()})",
        "VLLM_HARNESS_STATE",
        "chmod go-w",
    ):
        assert words in message


@needs_root
def test_a_group_of_one_user_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    os.chown(tmp_path, 0, 0)
    assert own_folder(tmp_path, OURS) == tmp_path
    os.chown(tmp_path, 0, NOBODY)
    with pytest.raises(UntrustedFolder, match="mode 0775"):
        own_folder(tmp_path, OURS)


def test_a_readable_folder_stays_readable_unless_it_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    own_folder(tmp_path, OURS)
    shared_folder(tmp_path, OURS)
    assert mode_of(tmp_path) == 0o755
    private_folder(tmp_path, OURS)
    assert mode_of(tmp_path) == 0o700


def test_our_own_link_is_followed_unless_the_folder_is_private(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there")
    assert own_folder(link, OURS) == link
    with pytest.raises(UntrustedFolder, match="is a link"):
        private_folder(link, OURS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_refused(kind: object, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UntrustedFolder, match="is not a folder"):
        kind(tmp_path / "file", OURS)  # type: ignore[operator]


@needs_root
@pytest.mark.parametrize("kind", [own_folder, private_folder])
def test_a_folder_of_another_user_is_refused(kind: object, tmp_path: Path) -> None:
    given_to_nobody(tmp_path)
    with pytest.raises(UntrustedFolder, match=r"owner nobody \(uid 65534\)"):
        kind(tmp_path, OURS)  # type: ignore[operator]


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_a_link_of_another_user_is_refused(kind: object, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there")
    given_to_nobody(link)
    with pytest.raises(UntrustedFolder, match="link"):
        kind(link, OURS)  # type: ignore[operator]


@needs_root
def test_a_cache_of_another_user_in_a_safe_place_is_read(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    given_to_nobody(cache)
    assert shared_folder(cache, OURS) == cache
    tmp_path.chmod(0o1777)
    with pytest.raises(UntrustedFolder, match="in a folder that others may write to"):
        shared_folder(cache, OURS)


@needs_root
def test_a_cache_of_root_is_read_by_others_if_it_is_readable() -> None:
    def act() -> int:
        shared_folder(folder, OURS)
        try:
            own_folder(folder, OURS)
        except UntrustedFolder as error:
            return 0 if "belongs to another user" in str(error) else 2
        return 3

    with reachable_folder() as folder:
        assert Nobody(act).exit_code() == 0
        folder.chmod(0o700)
        assert Nobody(lambda: shared_folder(folder, OURS) and 4).exit_code() == 1


@needs_root
def test_a_command_with_folders_of_another_user_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    with reachable_folder() as folder:
        (folder / "state").mkdir(mode=0o755)
        given_to_nobody(folder / "state")
        monkeypatch.setenv("VLLM_HARNESS_STATE", str(folder / "state"))
        error = CliRunner().invoke(app, ["serve", "ps"]).exception
        assert isinstance(error, UntrustedFolder)
        assert error.exit_code == 2
        with pytest.raises(UntrustedFolder):
            state_dir()
        folder.chmod(0o777)
        monkeypatch.setenv("VLLM_HARNESS_CACHE", str(folder / "state"))
        with pytest.raises(UntrustedFolder):
            cache_dir()


@needs_root
def test_fork_servers_are_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / ("x" * 150)
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(state))
    assert fork_server._folder() == state / "fork"
    given_to_nobody(state / "fork")
    with pytest.raises(UntrustedFolder, match=r"fork.*owner nobody"):
        fork_server._folder()
