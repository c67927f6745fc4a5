"""The stream as a child process."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from tests.narrow import not_none
from tests.waiting import wait_for
from trimtab_controller.configuration import decode
from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_controller.leadership.machine import CandidateRole
from trimtab_controller.loop.health import STUCK_S, Facts, Health, judge
from trimtab_controller.loop.hook import MAX_OUTPUT_BYTES, Hook, HookResult
from trimtab_controller.loop.stream_process import StreamProcess
from trimtab_process.health import LIVE, READY
from trimtab_protocol.messages.names import AppId


def test_the_stream_is_started_again_with_growing_delays_and_ended() -> None:
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", "pass"], lambda: clock[0])
    delays: list[float] = []
    for _ in range(3):
        child.tick()
        deadline = time.monotonic() + 60
        while child.restarts == len(delays):
            assert time.monotonic() < deadline
            before = clock[0]
            child.tick()
            clock[0] += 0.5
        delays.append(before)
    assert delays[0] < delays[1] < delays[2]
    child.close()
    lasting = StreamProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    lasting.tick()
    process = not_none(lasting._process)
    lasting.close()
    assert process.returncode == -15


def test_a_process_that_has_ended_is_told_until_it_has_run_for_a_minute() -> None:
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", "raise SystemExit(7)"], lambda: clock[0])
    assert child.trouble is None
    child.tick()
    assert child.trouble is None
    for _ in range(2):
        process = not_none(child._process)
        process.wait()
        child.tick()
        gone = child.trouble
        clock[0] += 10
        child._command = (
            [sys.executable, "-c", "import sys; sys.stdin.read()"] if child._failures == 2 else child._command
        )
        child.tick()
    assert gone == "Spark's process has ended 2 times in a row, at last with exit code 7, and will be started again"
    again = "Spark's process has ended 2 times in a row, at last with exit code 7, and runs again"
    assert child.trouble == again
    clock[0] += 60
    assert child.trouble is None
    child.close()
    assert child.trouble is None


LISTENING = "import sys; [print(line.strip(), file=open(sys.argv[1], 'a'), flush=True) for line in sys.stdin]"


def wait_until_told(told: Path, *lines: str) -> None:
    wait_for(lambda: told.exists() and told.read_text().split() == list(lines), f"{lines}", log=told.read_text)


def test_a_warm_stream_is_told_who_leads_and_a_restarted_one_again(tmp_path: Path) -> None:
    told = tmp_path / "told"
    clock = [0.0]
    child = StreamProcess([sys.executable, "-c", LISTENING, str(told)], lambda: clock[0], warm=True)
    child.lead()
    child.tick()
    wait_until_told(told, "lead")
    process = not_none(child._process)
    process.kill()
    process.wait()
    child.tick()
    clock[0] += 100
    child.tick()
    wait_until_told(told, "lead", "lead")
    child.stand_by()
    wait_until_told(told, "lead", "lead", "stand-by")
    child.lead()
    wait_until_told(told, "lead", "lead", "stand-by", "lead")
    child.close()


def test_a_stream_that_is_not_kept_warm_ends_with_the_term() -> None:
    child = StreamProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    child.tick()
    process = not_none(child._process)
    child.stand_by()
    assert process.returncode == -15
    child.tick()
    assert child.restarts == 0
    child.close()


# ---- the program of `[scaling] hook`: real processes, awaited, ended at their time limit, one after the other


APP, OTHER = AppId("app"), AppId("other")


@pytest.fixture
def hooks() -> Iterator[list[Hook]]:
    made: list[Hook] = []
    yield made
    for hook in made:
        hook.close()


def program(hooks: list[Hook], text: str, timeout_s: float = 60.0) -> Hook:
    settings = ScalingSettings(hook=(sys.executable, "-c", text))
    hooks.append(Hook(settings, limit_s=timeout_s))
    return hooks[-1]


def result(hook: Hook) -> HookResult:
    return not_none(wait_for(hook.poll, "it ends", every_s=0.02))


def test_it_gets_what_is_wanted_in_its_environment_and_never_a_shell(hooks: list[Hook], tmp_path: Path) -> None:
    out = tmp_path / "out"
    hook = program(hooks, f"import os; open({str(out)!r}, 'a').write(os.environ['TRIMTAB_DESIRED'] + ';')")
    hook.call(APP, {"TRIMTAB_DESIRED": "7 $(touch x)"})
    hook.call(OTHER, {"TRIMTAB_DESIRED": "9"})
    assert hook.poll() is None, "it has only begun"
    assert [result(hook), result(hook)] == [HookResult(APP, None), HookResult(OTHER, None)]
    assert out.read_text() == "7 $(touch x);9;"


def test_an_app_with_a_program_of_its_own_gets_that_one(hooks: list[Hook]) -> None:
    fails = (sys.executable, "-c", "raise SystemExit(7)")
    hooks.append(Hook(ScalingSettings(hook=(sys.executable, "-c", ""), apps={OTHER: {"hook": fails}})))
    hooks[0].call(APP, {})
    hooks[0].call(OTHER, {})
    assert [result(hooks[0]), result(hooks[0])] == [HookResult(APP, None), HookResult(OTHER, "exit code 7")]


def test_its_failure_is_told_with_the_end_of_its_output(hooks: list[Hook]) -> None:
    hook = program(
        hooks, "import sys; print('x' * 1000, flush=True); print('no quota left', file=sys.stderr); sys.exit(3)"
    )
    hook.call(APP, {})
    failure = not_none(result(hook).failure)
    assert failure.startswith("exit code 3: xx")
    assert failure.endswith("no quota left")


def test_one_that_cannot_be_started_is_told(hooks: list[Hook], tmp_path: Path) -> None:
    hooks.append(Hook(ScalingSettings(hook=(str(tmp_path / "missing"),))))
    hooks[0].call(APP, {})
    assert result(hooks[0]) == HookResult(APP, "it cannot be started: No such file or directory")


def test_one_that_takes_too_long_is_ended_with_its_children(hooks: list[Hook], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = f"import os, time; open({str(pids)!r}, 'a').write(str(os.getpid()) + ' '); time.sleep(600)"
    hook = program(
        hooks,
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)",
        timeout_s=60.0,
    )
    hook.call(APP, {})
    while not pids.exists() or not pids.read_text():
        assert hook.poll() is None
        time.sleep(0.02)
    hook._clock = lambda: time.monotonic() + 120.0
    assert result(hook) == HookResult(APP, "not done after 60 s")
    pid = int(pids.read_text())
    wait_for(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end")
    assert pid != os.getpid()


def test_a_reason_with_a_null_character_does_not_end_the_controller(hooks: list[Hook], tmp_path: Path) -> None:
    """An operator's reason may have any character; the environment of a process may not."""
    out = tmp_path / "out"
    hook = program(hooks, f"import os; open({str(out)!r}, 'w').write(os.environ['TRIMTAB_REASON'])")
    hook.call(APP, {"TRIMTAB_REASON": "ann wants 6: a\0b"})
    assert result(hook) == HookResult(APP, None)
    assert out.read_text() == "ann wants 6: a b"


def test_one_that_writes_without_end_is_ended(hooks: list[Hook]) -> None:
    hook = program(hooks, "import os\nwhile True: os.write(1, b'x' * 1_000_000)")
    hook.call(APP, {})
    failure = not_none(result(hook).failure)
    assert failure.startswith(f"more than {MAX_OUTPUT_BYTES} bytes of output: xx")


# ---- what counts as health: windows for a leader, touch with Kafka for a standby


ENDED = "Spark's process has ended 3 times in a row, at last with exit code 1, and will be started again"
KNOWN = Facts(role=CandidateRole.LEADING, window_age_s=4.0, heard_s=1.0, stream=None)
CASES = [
    (KNOWN, True, "leads; the last window ended 4 s ago"),
    (replace(KNOWN, role=None), True, "dry run; the last window ended 4 s ago"),
    # The process may have been started again in time: what counts is that windows come.
    (replace(KNOWN, stream=ENDED), True, "leads; the last window ended 4 s ago"),
    (
        replace(KNOWN, window_age_s=61.0, stream=ENDED),
        False,
        f"leads, but the last window ended 61 s ago, expected one in 35 s: {ENDED}",
    ),
    (
        replace(KNOWN, window_age_s=None),
        False,
        "leads, but no window has come yet, expected one in 35 s: does the stream run, and do agents report?",
    ),
    (replace(KNOWN, role=CandidateRole.WAITING, window_age_s=None), True, "stands by; Kafka answered 1 s ago"),
    (replace(KNOWN, role=CandidateRole.WAITING, heard_s=None), False, "stands by, but Kafka has not answered yet"),
    (
        replace(KNOWN, role=CandidateRole.WAITING, heard_s=30.0),
        False,
        "stands by, but Kafka answered 30 s ago, expected 11 s at most",
    ),
    (
        replace(KNOWN, role=CandidateRole.WAITING, stream=ENDED),
        False,
        f"stands by, but could publish no windows: {ENDED}",
    ),
    (
        replace(KNOWN, role=CandidateRole.SUSPENDED),
        False,
        "the lease has expired: no commands until it is known who leads",
    ),
    (replace(KNOWN, role=CandidateRole.AWAY), False, "waits for Kafka, to join the group of controllers"),
]


@pytest.mark.parametrize(("facts", "well", "text"), CASES, ids=[text for _, _, text in CASES])
def test_a_verdict_and_why(facts: Facts, well: bool, text: str) -> None:
    found = judge(facts, window_limit_s=35.0, contact_limit_s=11.0)
    assert (found.well, found.text) == (well, text)


def test_every_role_has_a_verdict() -> None:
    assert all(
        judge(replace(KNOWN, role=role), window_limit_s=35.0, contact_limit_s=11.0).text for role in CandidateRole
    )


@dataclass
class Playing:
    role: CandidateRole = CandidateRole.WAITING
    heard_at: float | None = None
    trouble: str | None = None


def test_a_controller_from_its_start_to_a_dead_spark() -> None:
    document = {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
        "stream": {"checkpoint_dir": "/x", "window_s": 10.0, "watermark_s": 5.0},
    }
    now, candidate, stream = [1000.0], Playing(role=CandidateRole.AWAY), Playing()
    health = Health(decode(document), stream, lambda: now[0])
    assert health.ready().text == "dry run, but no window has come yet, expected one in 35 s: " + (
        "does the stream run, and do agents report?"
    )
    health.follow(candidate)
    assert not health.ready().well
    candidate.role, candidate.heard_at = CandidateRole.WAITING, 999.0
    assert health.ready().well
    candidate.role = CandidateRole.LEADING
    assert not health.ready().well
    health.see_window(998.0)
    assert health.ready().text == "leads; the last window ended 2 s ago"
    now[0], stream.trouble = 1034.0, ENDED
    assert not health.ready().well
    assert ENDED in health.ready().text
    health.see_window(None)  # another term
    assert "no window has come yet" in health.ready().text


def test_a_loop_that_stands_still_is_not_alive() -> None:
    document = {
        "controller": {"cluster": "c"},
        "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
        "stream": {"checkpoint_dir": "/x"},
    }
    now = [1000.0]
    health = Health(decode(document), None, lambda: now[0])
    assert set(health.checks()) == {LIVE, READY}
    now[0] += STUCK_S
    assert not health.live().well
    health.turned()
    assert health.live().text == "the loop turned 0 s ago"
