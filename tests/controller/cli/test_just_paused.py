"""Commands right after `trimtab pause`, which intents tell before the status; and where the status is unreadable."""

import argparse
from dataclasses import replace

import pytest

from tests.controller.cli.status_examples import APP, NOW, STATUS
from trimtab_controller.cli import actions
from trimtab_controller.cli.operator import CommandError, Target, target_of
from trimtab_controller.configuration import decode
from trimtab_protocol.messages.intents import Pause, RollingRestart, Scale
from trimtab_protocol.messages.status import ProposalStatus

PAUSE = Pause(by="ann@desk", at=NOW, reason="deploy")
WAITING = ProposalStatus(
    plan="3.15", app=APP, reason="load distance 8.6 above 5.0", at=NOW - 5, expires_at=NOW + 600, before=8.6,
    planned=0.4, lower_bound=0.3, moves=(), moves_total=2, to_standbys=0, restore_bytes=0, unmeasured=0,
)  # fmt: skip
TARGET = target_of(
    decode(
        {
            "controller": {"cluster": "prod"},
            "kafka": {"bootstrap_servers": "127.0.0.1:1"},
            "stream": {"checkpoint_dir": "none"},
        }
    )
)


@pytest.mark.parametrize(
    ("action", "named"),
    [("drain", {"worker": "orders-1"}), ("scale", {"app": str(APP), "workers": 3}), ("approve", {"plan": "3.15"})],
)
def test_a_command_right_after_a_pause_says_when_it_begins(
    action: str,
    named: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    written: list[object] = []
    monkeypatch.setattr(actions, "read_status", lambda _: replace(STATUS, proposals=(WAITING,)))
    monkeypatch.setattr(actions, "read_intents", lambda _: {PAUSE.key: PAUSE})
    monkeypatch.setattr(actions, "write_intents", lambda *known, **_: written.append(known))
    monkeypatch.setattr("time.time", lambda: NOW)
    args = argparse.Namespace(action=action, reason="release", json=False, **named)
    assert actions.run_action(args, TARGET) == 0
    assert "but the controller is paused: " in capsys.readouterr().out
    assert len(written) == 1


@pytest.mark.parametrize(
    ("action", "named", "told"),
    [
        ("pause", {}, "paused: a plan in flight is finished, no new one starts until `trimtab resume`\n"),
        ("scale", {"app": str(APP), "workers": None}, f"the size of {APP} follows its demand again"),
        ("rolling-restart", {"app": str(APP), "cancel": True}, f"the restart of {APP} is cancelled"),
        ("drain", {"worker": "orders-1"}, None),
        ("scale", {"app": str(APP), "workers": 3}, None),
    ],
)
def test_what_goes_ahead_where_the_status_cannot_be_read(
    action: str,
    named: dict[str, object],
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def unreadable(_: Target) -> None:
        raise CommandError("the status cannot be read: it is of another version")

    written: list[object] = []
    monkeypatch.setattr(actions, "read_status", unreadable)
    monkeypatch.setattr(actions, "read_intents", lambda _: {Scale.key_of(APP): None, RollingRestart.key_of(APP): None})
    monkeypatch.setattr(actions, "write_intents", lambda *known, **_: written.append(known))
    args = argparse.Namespace(action=action, reason="release", json=False, **named)
    if told is None:
        with pytest.raises(CommandError, match="another version"):
            actions.run_action(args, TARGET)
        assert not written
        return
    assert actions.run_action(args, TARGET) == 0
    assert capsys.readouterr().out.startswith(told)
    assert len(written) == 1
