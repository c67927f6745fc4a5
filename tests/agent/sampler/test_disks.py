"""The disk of a host: real folders, and disks that only these tests have."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from trimtab_agent.sampler.disks import DiskSpace, disk_of, fullest_disk
from trimtab_agent.sampler.readings import CounterReader, find_quotas
from trimtab_protocol.messages.report import Basis

DISKS = {"/small": (70, 30), "/large": (400, 600), "/nearly-full": (980, 20)}
"""Used and free; a tenth is reserved besides."""


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(folder: Path) -> SimpleNamespace:
        for mount, (used, free) in DISKS.items():
            if Path(mount) == folder:
                return SimpleNamespace(total=1.1 * (used + free), used=used, free=free)
        raise FileNotFoundError(folder) if str(folder) != "/broken" else OSError("input/output error")

    monkeypatch.setattr(shutil, "disk_usage", usage)


def test_a_folder_that_is_yet_to_be_made_is_on_the_disk_of_its_parents(tmp_path: Path) -> None:
    found, here = disk_of(tmp_path / "a" / "b"), disk_of(tmp_path)
    assert found is not None
    assert here is not None
    assert 0 < found.free_bytes <= found.total_bytes == pytest.approx(here.total_bytes, rel=0.01)
    assert disk_of(Path("/dev/null/x")) is None


@pytest.mark.usefixtures("disks")
def test_two_workers_on_one_disk_count_it_once() -> None:
    assert fullest_disk([Path("/large/w0"), Path("/large/w1")]) == DiskSpace(total_bytes=1_000, free_bytes=600)


@pytest.mark.usefixtures("disks")
def test_of_several_disks_the_one_with_the_least_free_space_counts() -> None:
    folders = [Path("/large/w0"), Path("/nearly-full/w1"), Path("/small/w2")]
    assert fullest_disk(folders) == DiskSpace(total_bytes=1_000, free_bytes=20)


@pytest.mark.usefixtures("disks")
def test_what_cannot_be_read_is_unknown_and_not_zero() -> None:
    assert fullest_disk([]) is None
    assert fullest_disk([Path("/large/w0"), Path("/broken/w1")]) is None


def test_the_reading_has_the_disk_of_the_workers_state(tmp_path: Path) -> None:
    known = CounterReader(find_quotas(), Basis.HOST, [tmp_path / "w0", tmp_path / "w1"]).read({}).disk
    assert known is not None
    assert known.total_bytes <= shutil.disk_usage(tmp_path).total
    assert CounterReader(find_quotas(), Basis.HOST).read({}).disk is None
