"""What a command says that needs a whole window, while there is none."""

import pytest

from trimtab_controller.cli.operator import CommandError
from trimtab_controller.cli.preview import view_of
from trimtab_controller.decider.memory.memory import WindowResult
from trimtab_controller.decider.values.reasons import NotReady, SkipReason
from trimtab_protocol.messages.names import AppId


@pytest.mark.parametrize(
    ("reason", "then"),
    [
        (SkipReason.WORKER_INCOMPLETE, "`trimtab runbook worker_incomplete` says what to do"),
        (SkipReason.WINDOW_TOO_EARLY, "ask again after the next window"),
    ],
)
def test_it_says_what_is_missing_and_what_to_do(reason: SkipReason, then: str) -> None:
    known = WindowResult()
    known.views = {AppId("orders"): NotReady(reason=reason, detail="w1", app=AppId("orders"))}
    with pytest.raises(CommandError) as refusal:
        view_of(known, None, "--app")
    assert str(refusal.value) == f"no complete snapshot: {reason}: w1; {then}"
