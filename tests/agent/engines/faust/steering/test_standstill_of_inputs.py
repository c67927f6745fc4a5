"""For how long a worker says that rebalances have stopped its inputs."""

import pytest

from tests.agent.engines.faust.steering.test_commands_to_worker import Worker
from trimtab_agent.engines.faust.group.operators import Layout


@pytest.mark.parametrize(("empty_at", "first"), [(None, 1), (0.0, 0)])
def test_a_standstill_of_inputs_counts_unless_the_app_begins_with_it(empty_at: float | None, first: int) -> None:
    worker = Worker()
    worker.parts.shared.empty_at = empty_at
    worker.parts.shared.layout = Layout(named={}, sources=frozenset({"in"}), changelogs=frozenset())
    worker.parts.ownership.learn = lambda layout: None  # type: ignore[method-assign]
    worker.shared.refuse("measured only")
    assert worker.status.paused is None

    def counted() -> int:
        worker.watcher.rebalancing()
        worker.watcher.stable()
        assert worker.status.paused is not None
        return worker.status.paused[1]

    assert [counted(), counted()] == [first, first + 1]
