"""Samples out of two readings: unknown is never zero, nothing is more than the hardware can do."""

from dataclasses import replace

import pytest

from tests.agent.sampler.host_readings import reading as a_reading
from trimtab_agent.sampler.derive import HostReading, ProcessReading, ProcessUse, UsableResources, derive
from trimtab_agent.sampler.disks import DiskSpace
from trimtab_protocol.messages.names import WorkerId
from trimtab_protocol.messages.report import Basis, HostSample

W0 = WorkerId("w0")
HOST = UsableResources(basis=Basis.HOST, cores=2.0, host_cores=2.0)
DISK = DiskSpace(total_bytes=50, free_bytes=40)
OWN = ProcessReading(pid=1, created=5.0, cpu_s=1.0, memory_bytes=50)


def process(cpu_s: float, *, pid: int = 7, created: float = 100.0) -> ProcessReading:
    return ProcessReading(pid=pid, created=created, cpu_s=cpu_s, memory_bytes=1000)


def reading(at: float, cpu_s: float | None, worker: ProcessReading | None = None, sent: int | None = 0) -> HostReading:
    known = {"cpu_s": cpu_s, "received_bytes": sent, "sent_bytes": sent, "memory_bytes": 10, "memory_limit_bytes": 20}
    return a_reading(at, disk=DISK, own=OWN, workers={W0: worker} if worker else {}, **known)


def test_two_readings_give_a_sample() -> None:
    use = derive(reading(10, 4.0, process(1.0), sent=100), reading(11, 4.5, process(1.2), sent=400), HOST, 1.0)

    assert use.host == HostSample(
        cpu_s=0.5,
        cores=2.0,
        basis=Basis.HOST,
        received_bytes=300,
        sent_bytes=300,
        memory_bytes=10,
        memory_limit_bytes=20,
        disk_total_bytes=50,
        disk_free_bytes=40,
    )
    assert use.workers == {W0: ProcessUse(cpu_s=pytest.approx(0.2), memory_bytes=1000)}


def test_the_first_reading_tells_no_use_but_levels() -> None:
    use = derive(None, reading(10, 4.0, process(1.0)), HOST, 1.0)

    assert (use.host.cpu_s, use.host.sent_bytes, use.host.memory_bytes) == (None, None, 10)
    assert use.workers == {W0: ProcessUse(cpu_s=None, memory_bytes=1000)}


@pytest.mark.parametrize(
    "now",
    [process(0.5), process(3.0, pid=8), process(3.0, created=200.0)],
    ids=["counter went back", "another pid", "pid reused"],
)
def test_another_process_or_counter_is_unknown(now: ProcessReading) -> None:
    use = derive(reading(10, 4.0, process(1.0)), reading(11, 3.0, now), HOST, 1.0)

    assert (use.host.cpu_s, use.workers[W0].cpu_s) == (None, None)


@pytest.mark.parametrize("at", [10.0, 9.0], ids=["stood still", "went back"])
def test_a_clock_that_does_not_advance_tells_nothing(at: float) -> None:
    use = derive(reading(10, 4.0, process(1.0)), reading(at, 9.0, process(2.0)), HOST, 1.0)

    assert (use.host.cpu_s, use.workers[W0].cpu_s) == (None, None)


def test_a_late_reading_is_scaled_to_the_interval() -> None:
    use = derive(reading(10, 4.0, process(1.0), sent=0), reading(14, 6.0, process(2.0), sent=800), HOST, 1.0)

    assert (use.host.cpu_s, use.host.sent_bytes, use.workers[W0].cpu_s) == (0.5, 200, 0.25)


def test_more_than_the_hardware_can_do_is_cut_and_marked() -> None:
    limits = replace(HOST, link_bytes_s=1000.0)

    use = derive(reading(10, 4.0, process(1.0), sent=0), reading(11, 9.0, process(6.0), sent=5000), limits, 1.0)

    assert (use.host.cpu_s, use.host.sent_bytes, use.host.received_bytes) == (2.0, 1000, 1000)
    assert use.workers[W0] == ProcessUse(cpu_s=2.0, memory_bytes=1000, clamped=True)


def test_with_configured_cores_the_host_uses_what_its_workers_and_agent_use() -> None:
    share = UsableResources(basis=Basis.CONFIG, cores=1.0, host_cores=2.0)
    before, now = reading(10, 4.0, process(1.0)), reading(11, 5.9, process(1.3))

    assert derive(before, replace(now, own=replace(OWN, cpu_s=1.1)), share, 1.0).host.cpu_s == pytest.approx(0.4)
    assert derive(before, reading(11, 5.9, process(0.1)), share, 1.0).host.cpu_s is None
