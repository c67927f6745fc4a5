"""One worker in each data folder; the next one waits for its end, and is not steered if it does not come."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_agent.engines.faust.safety import own_folder

OTHER = """
import asyncio, sys; from pathlib import Path
from trimtab_agent.engines.faust.safety.own_folder import hold
print(asyncio.run(hold(Path(sys.argv[1]))), flush=True); sys.stdin.read()
"""


def test_a_folder_is_of_one_worker_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_folder, "POLL_S", 0.01)
    monkeypatch.setattr(own_folder, "WAIT_S", 0.05)
    folder = tmp_path / "v1" / "tables"
    command = [sys.executable, "-c", OTHER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert not asyncio.run(own_folder.hold(folder))
        other.kill()
    assert asyncio.run(own_folder.hold(folder))


def test_a_folder_that_cannot_be_written_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert asyncio.run(own_folder.hold(tmp_path / "file" / "tables"))
