import os
import shutil
from pathlib import Path

from trimtab_sandbox.cluster import SOCKET_PATH_BYTES, make_socket_folder


def test_sockets_are_in_the_sandboxs_folder(tmp_path: Path) -> None:
    assert make_socket_folder(tmp_path) == tmp_path / "sockets"
    assert (tmp_path / "sockets").is_dir()


def test_sockets_are_elsewhere_when_the_path_would_be_too_long(tmp_path: Path) -> None:
    folder = make_socket_folder(tmp_path / ("x" * SOCKET_PATH_BYTES))
    try:
        assert tmp_path not in folder.parents
        assert folder.is_dir()
        assert len(os.fsencode(folder / "h64.sock")) <= SOCKET_PATH_BYTES
    finally:
        shutil.rmtree(folder)
