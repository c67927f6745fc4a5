"""A command right after `trimtab pause`: the status does not tell of it yet, the intents do."""

import argparse
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.controller.cli.status_examples import APP, NOW, STATUS
from trimtab_controller.cli import operator, plans, scale
from trimtab_controller.cli.known import Target
from trimtab_controller.configuration import decode
from trimtab_protocol.messages.intents import Pause
from trimtab_protocol.messages.status import ProposalStatus

PAUSE = Pause(by="ann@desk", at=NOW, reason="deploy")
WAITING = ProposalStatus(
    plan="3.15", app=APP, reason="load distance 8.6 above 5.0", at=NOW - 5, expires_at=NOW + 600, before=8.6,
    planned=0.4, lower_bound=0.3, moves=(), moves_total=2, to_standbys=0, restore_bytes=0, unmeasured=0,
)  # fmt: skip
TARGET = operator.target_of(
    decode(
        {
            "controller": {"cluster": "prod"},
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "stream": {"checkpoint_dir": "none"},
        }
    )
)


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (operator.run_drain, {"node": "orders-1"}),
        (scale.run_scale, {"app": str(APP), "workers": 3}),
        (plans.run_word, {"function": "approve", "plan": "3.15"}),
    ],
)
def test_a_command_right_after_a_pause_says_when_it_begins(
    run: Callable[[argparse.Namespace, Target], int],
    named: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written: list[object] = []
    monkeypatch.setattr(operator, "read_status", lambda _: replace(STATUS, proposals=(WAITING,)))
    monkeypatch.setattr(operator, "read_intents", lambda _: {PAUSE.key: PAUSE})
    monkeypatch.setattr(operator, "write_intents", lambda *known, **_: written.append(known))
    monkeypatch.setattr("time.time", lambda: NOW)
    assert run(argparse.Namespace(reason="release", json=False, **named), TARGET) == 0
    assert "but the controller is paused: " in capsys.readouterr().out
    assert len(written) == 1
