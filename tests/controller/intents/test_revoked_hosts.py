"""What operators ask of hosts whose word does not count: with `enforce` what they have not signed is dropped."""

from dataclasses import replace

from tests.controller.decider.decider_situations import APP, W0, W1, kg
from tests.controller.decider.deciders import BALANCED, execution
from tests.controller.intents import test_plans
from tests.controller.intents.test_actions import STARTABLE, STATUS, asked
from tests.controller.intents.test_plans import ended, looked, moved, refused
from trimtab_controller.intents import actions, plans
from trimtab_controller.intents.change import RefusalKind
from trimtab_protocol.messages.intents import Drain
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.report import WorkerState
from trimtab_protocol.messages.status import HostStatus, NodeStatus, SignatureStatus, Status

HOST, OTHER = STATUS.nodes[0].host, next(row.host for row in STATUS.nodes if row.host != STATUS.nodes[0].host)
ON_HOST = sorted(row.worker for row in STATUS.nodes if row.host == HOST)
TWO = tuple(
    NodeStatus(
        worker=worker, host=HostId(host), app=APP, state=WorkerState.RUNNING, capacity=1.0, load_pct=10.0,
        key_groups=1, draining=False, steering=True,
    )
    for worker, host in ((W0, "h0"), (W1, "h1"))
)  # fmt: skip


def revoked(status: Status, *hosts: HostId, checking: str = "enforce", **doubted: str) -> Status:
    found = {HostId(host): fault for host, fault in doubted.items()}
    return replace(status, signatures=SignatureStatus(checking=checking, enrolled=1, revoked=hosts, doubted=found))


def moving(*hosts: str, checking: str = "enforce") -> Status:
    """The status of the situations of plans, with two workers, and these hosts revoked."""
    status = replace(test_plans.STATUS, nodes=TWO, intents={})
    return revoked(status, *map(HostId, hosts), checking=checking)


def test_nothing_is_moved_to_or_from_a_host_whose_key_is_revoked() -> None:
    told = refused(RefusalKind.CONFLICT, test_plans.move, ["app/sums/0"], W1, status=moving("h1"))
    assert told == (
        "the key of h1 is revoked, so what its agent says of w1 is dropped, and nothing can move to or from there; "
        "`trimtab keys enroll h1` gives it a new key"
    )
    told = refused(RefusalKind.CONFLICT, test_plans.move, ["app/sums/0"], W1, status=moving("h0"))
    assert told.startswith("the key of h0 is revoked, so what its agent says of w0 is dropped")
    assert test_plans.move(["app/sums/0"], W1, status=moving("h1", checking="warn")).records, "there it counts"
    assert test_plans.move(["app/sums/0"], W1, status=moving("h7")).records


def test_undo_leaves_out_what_would_go_to_a_host_whose_key_is_revoked() -> None:
    known = looked(None, ended(*moved(0)))
    with_status = replace(asked(), status=moving("h1"))
    told = refused(RefusalKind.CONFLICT, plans.undo, with_status, "1.2", known)
    assert told.startswith("the key of h1 is revoked, so what its agent says of w1 is dropped")
    told = refused(RefusalKind.CONFLICT, plans.undo, with_status, "1.2", known, partly=True)
    assert told == "no key group can go back: what is said of w1 is dropped: the key of h1 is revoked"
    both = test_plans.seen({kg(0): W0, kg(1): W0, kg(2): W1}, ended(*moved(0, 1)), present=execution(BALANCED))
    assert plans.undo(replace(asked(), status=moving("h7")), "1.2", both, partly=True).records


def test_a_name_that_does_not_report_is_refused_with_the_hosts_that_are_not_heard() -> None:
    gone = replace(moving("h1"), nodes=TWO[:1])
    told = refused(RefusalKind.UNKNOWN, test_plans.move, ["app/sums/0"], W1, status=gone)
    assert told == "no worker 'w1' reports; there is w0; what is said for these hosts is dropped: h1 (revoked)"
    status = revoked(STATUS, HostId("h8"), h9="unsigned")
    told = refused(RefusalKind.UNKNOWN, actions.drain, asked(status), "w9")
    assert told.endswith("; what is said for these hosts is dropped: h8 (revoked), h9 (unsigned)")
    told = refused(RefusalKind.UNKNOWN, actions.maintenance, asked(status), "h8", 60.0)
    assert told.endswith("; what is said for these hosts is dropped: h8 (revoked), h9 (unsigned)")


def test_a_worker_on_a_host_whose_key_is_revoked_is_not_drained_but_stopped_there() -> None:
    status = revoked(STATUS, HOST)
    expected = (
        f"the key of {HOST} is revoked, so what its agent says of {ON_HOST[0]} is dropped, and nothing can move to or "
        f"from there; stop it on the host itself, and others take over, or `trimtab keys enroll {HOST}`"
    )
    for ask, name in ((actions.drain, ON_HOST[0]), (actions.drain, HOST)):
        assert refused(RefusalKind.CONFLICT, ask, asked(status), name) == expected
    assert refused(RefusalKind.CONFLICT, actions.maintenance, asked(status), HOST, 60.0) == expected
    zoned = replace(status, hosts=tuple(HostStatus(host=each, zone="a") for each in (HOST, OTHER)))  # type: ignore[call-arg]
    change = actions.drain(asked(zoned), "zone:a")
    assert {each.worker for _, each in change.records if isinstance(each, Drain)}.isdisjoint(ON_HOST)
    assert f"but not {ON_HOST[0]}: the key of {HOST} is revoked" in change.caveats


def test_a_rolling_restart_goes_round_a_host_whose_key_is_revoked() -> None:
    [app] = {row.app for row in STATUS.nodes}
    change = plans.rolling_restart(asked(revoked(STARTABLE, HOST)), app)
    assert f"but not {ON_HOST[0]}: the key of {HOST} is revoked" in change.caveats
    [(_, intent)] = change.records
    assert not set(ON_HOST) & set(intent.workers)  # type: ignore[union-attr]
