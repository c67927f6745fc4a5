"""What `trimtab maintenance` asks for."""

from dataclasses import replace

import pytest

from tests.controller.intents.test_actions import BACK, STATUS, WORKER, asked, own, written
from trimtab_controller.intents import actions
from trimtab_controller.intents.change import ChangeRefused
from trimtab_controller.intents.policies import POLICIES
from trimtab_protocol.messages.intents import Drain

[HOST] = {row.host for row in STATUS.nodes if row.worker == WORKER}
WORKERS = sorted(row.worker for row in STATUS.nodes if row.host == HOST)


def test_the_workers_of_a_host_stay_off_for_a_time_and_that_can_be_ended_without_its_reports() -> None:
    known = asked()
    change = actions.maintenance(known, HOST, 7200.0)
    expected = [Drain(**own(worker=each, until=known.at + 7200.0, host=HOST)) for each in WORKERS]  # type: ignore[arg-type]
    assert written(change) == expected
    assert change.text.startswith(
        f"maintenance of {HOST} for 120 min: {len(WORKERS)} worker{'s'[: len(WORKERS) - 1]} will be drained"
    )
    nobody = asked(None, **{each.key: each for each in expected})
    assert actions.end_maintenance(nobody, HOST).records == tuple((each.key, BACK) for each in expected)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ChangeRefused, match="no host 'nobody' reports"):
        actions.maintenance(asked(), "nobody", 60.0)
    unseen = replace(STATUS, nodes=(), hosts=(), apps=(), window_end=None)
    with pytest.raises(
        ChangeRefused, match=r"^which workers run is not known: no window has come since this controller"
    ):
        actions.maintenance(asked(unseen), HOST, 60.0)
    with pytest.raises(ChangeRefused, match="expected more than 0 s"):
        POLICIES["maintenance"](host=HOST, for_s=0.0)
    assert actions.end_maintenance(asked(), HOST).text == f"nothing to do: {HOST} is not being drained"


def test_a_drain_without_an_end_gets_none_by_a_maintenance() -> None:
    lasting = Drain(**own(worker=WORKER))  # type: ignore[arg-type]
    with pytest.raises(ChangeRefused, match=f"operators drain all workers of {HOST} without an end"):
        actions.maintenance(asked(**{lasting.key: lasting}), HOST, 60.0)
    both = replace(STATUS, nodes=tuple(replace(row, host=HOST) for row in STATUS.nodes[:2]))
    change = actions.maintenance(asked(both, **{lasting.key: lasting}), HOST, 60.0)
    assert WORKER in {row.worker for row in both.nodes}
    assert [intent.worker for intent in written(change) if isinstance(intent, Drain)] == [
        row.worker for row in both.nodes if row.worker != WORKER
    ]
    assert change.caveats[-1] == f"but {WORKER} stay off also after it: an operator drains them without an end"
    short = replace(lasting, until=asked().at + 1.0)
    assert len(written(actions.maintenance(asked(both, **{short.key: short}), HOST, 60.0))) == 2, "it has an end"
