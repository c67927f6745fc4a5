"""The program of `[scaling] hook`: real processes, awaited, ended at their time limit, one after the other."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from trimtab_controller.decider.values.scaling import ScalingSettings
from trimtab_controller.loop.hook import MAX_OUTPUT_BYTES, Hook, HookResult
from trimtab_protocol.messages.names import AppId

APP, OTHER = AppId("app"), AppId("other")


@pytest.fixture
def hooks() -> Iterator[list[Hook]]:
    made: list[Hook] = []
    yield made
    for hook in made:
        hook.close()


def program(hooks: list[Hook], text: str, timeout_s: float = 60.0) -> Hook:
    settings = ScalingSettings(hook=(sys.executable, "-c", text), hook_timeout_s=timeout_s)
    hooks.append(Hook(settings))
    return hooks[-1]


def result(hook: Hook) -> HookResult:
    deadline = time.monotonic() + 60.0
    while (found := hook.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


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
    failure = result(hook).failure
    assert failure is not None
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
    deadline = time.monotonic() + 60.0
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)
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
    failure = result(hook).failure
    assert failure is not None
    assert failure.startswith(f"more than {MAX_OUTPUT_BYTES} bytes of output: xx")
