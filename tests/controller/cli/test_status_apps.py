"""What `trimtab status` says of each app."""

from dataclasses import replace

from tests.controller.cli.status_examples import APP, STATUS, node, shown
from trimtab_controller.cli.status import FEW, NO_TUPLES, collocation_line
from trimtab_models.albic.fit import Unknown
from trimtab_protocol.messages.names import AppId, HostId, OperatorId, WorkerId
from trimtab_protocol.messages.report import Absence, WorkerState
from trimtab_protocol.messages.status import (
    CapacityStatus,
    CollocationStatus,
    FixedStatus,
    OperatorCostStatus,
    PoolStatus,
    RemoteCostStatus,
    SizeStatus,
)


def load_line(**figures: object) -> str:
    """The line of the app's load distance, if the app has these figures."""
    [app] = STATUS.apps
    lines = shown(replace(STATUS, apps=(replace(app, **figures),)), width=120)  # type: ignore[arg-type]
    [found] = [line for line in lines if "load distance 2.2 pp" in line]
    return found


def test_key_groups_that_a_crash_would_cost_a_restore_are_said() -> None:
    def line(missing: int | None) -> str:
        return load_line(missing_standbys=missing)

    assert line(7).endswith("63 key groups, 7 lack a standby")
    assert line(0).endswith("63 key groups")
    assert line(None).endswith("63 key groups")


def test_the_share_of_sends_that_skip_the_broker_is_said_if_it_is_known() -> None:
    def line(share: float | None) -> str:
        return load_line(collocation=0.9, local_sends=share)

    assert line(0.75).endswith("mean load 50.0 %, collocation 90%, local sends 75%, 63 key groups")
    assert line(0.0).endswith("collocation 90%, local sends 0%, 63 key groups")
    assert line(None).endswith("collocation 90%, 63 key groups")


def test_what_the_loss_of_a_host_leads_to_is_said_with_its_bound() -> None:
    app = replace(
        STATUS.apps[0],
        n_minus_1_pct=81.4,
        n_minus_1_bound_pct=79.0,
        n_minus_1_worker=WorkerId("orders-2"),
        n_minus_1_lost=(WorkerId("orders-7"),),
    )
    assert "N-1: 81 % at orders-2 after losing orders-7, bound 79 %" in " ".join(shown(replace(STATUS, apps=(app,))))
    assert "N-1" not in " ".join(shown(STATUS))
    measured = shown(replace(STATUS, apps=(replace(app, following_share=0.043),)), width=160)
    assert "bound 79 %; following a key group costs 4% of its load" in " ".join(measured)


def test_the_size_of_an_app_is_said_with_its_reason() -> None:
    size = SizeStatus(text="4 workers, demand 3.60 of 4.00 cores (90%), wanted 6: demand above 85% for 40 s")
    [app] = STATUS.apps
    lines = shown(replace(STATUS, apps=(replace(app, size=size),)), width=120)
    assert [line.strip() for line in lines if "size:" in line] == [f"size: {size.text}"]
    assert not any("size:" in line for line in shown(STATUS))


def test_how_long_workers_took_to_start_is_said_beside_the_configured_time() -> None:
    size = SizeStatus(text="1 worker", restart_s=120.0, measured_restart_s=14.4)
    [app] = STATUS.apps
    [line] = [line for line in shown(replace(STATUS, apps=(replace(app, size=size),)), width=120) if "size:" in line]
    assert line.strip() == "size: 1 worker; started workers ran after 14 s at most, restart_s is 120 s"
    unseen = replace(size, measured_restart_s=None)
    assert not any("ran after" in line for line in shown(replace(STATUS, apps=(replace(app, size=unseen),))))


def test_settings_of_the_app_alone_are_shown() -> None:
    size = SizeStatus(text="1 worker", own_settings=("max_workers = 4", 'mode = "act"'))
    [app] = STATUS.apps
    [line] = [line for line in shown(replace(STATUS, apps=(replace(app, size=size),)), width=120) if "size:" in line]
    assert line.strip() == 'size: 1 worker; own settings: max_workers = 4, mode = "act"'


def test_fixed_workers_are_listed_with_their_reasons_and_how_much_is_unknown() -> None:
    fixed = tuple(
        FixedStatus(worker=WorkerId(name), reason=reason, text=text)
        for name, reason, text in (
            ("orders-7", "worker_missing", ""),
            ("orders-8", "worker_missing", ""),
            ("orders-9", "worker_not_steering", "store memory:"),
        )
    )
    apps = tuple(replace(app, fixed=fixed, stale_key_groups=4, unknown_load=0.031) for app in STATUS.apps)
    lines = shown(replace(STATUS, apps=apps), width=120)

    at = lines.index("fixed workers: plans are made around them")
    assert lines[at + 1 : at + 3] == [
        "  orders: orders-7, orders-8: worker_missing",
        "  orders: orders-9: worker_not_steering, store memory:",
    ]
    assert [line for line in lines if line.endswith("63 key groups, 3.1% of the load is unknown")]
    assert "fixed workers: plans are made around them" not in shown(STATUS)


def test_levels_of_the_workers_are_a_line_of_the_app() -> None:
    levels = ("light", "heavy", "light", "moderate", "heavy", None)
    nodes = tuple(node(f"w{place}", level=level) for place, level in enumerate(levels))
    lines = " ".join(" ".join(shown(replace(STATUS, nodes=nodes))).split())
    assert "workers: 2 light, 1 moderate, 2 heavy (w1, w4)" in lines
    assert "workers:" not in " ".join(shown(STATUS)), "no level is known"


def test_headroom_is_a_line_of_the_app() -> None:
    capacity = CapacityStatus(
        headroom=1.5, potential=2.0, bound=2.25, first="host h1", heaviest="orders/sums/7", accuracy=0.934
    )
    lines = " ".join(" ".join(shown(replace(STATUS, apps=(replace(STATUS.apps[0], capacity=capacity),)))).split())
    assert (
        "headroom: 1.5 times the input until host h1 is full, 2.0 with free moves "
        "(bound 2.2, by orders/sums/7 alone); costs predict 93% of the CPU"
    ) in lines
    assert "headroom" not in " ".join(
        shown(replace(STATUS, apps=(replace(STATUS.apps[0], capacity=CapacityStatus()),)))
    )


def test_what_remote_tuples_cost_is_a_line_of_the_app() -> None:
    def line(sending: RemoteCostStatus, receiving: RemoteCostStatus, **more: float) -> str:
        none = RemoteCostStatus(unknown="no tuples between key groups")
        rows = (
            OperatorCostStatus(operator=OperatorId("head"), sending=sending, receiving=none),
            OperatorCostStatus(operator=OperatorId("tail"), sending=none, receiving=receiving),
        )
        app = replace(STATUS.apps[0], remote_costs=CollocationStatus(operators=rows, **more))
        told = " ".join(" ".join(shown(replace(STATUS, apps=(app,)))).split())
        assert collocation_line(app) in told
        return collocation_line(app)

    dear = RemoteCostStatus(value=98.4e-6, error=12.2e-6, significant=True)
    doubtful = RemoteCostStatus(value=-4e-6, error=20e-6)
    unknown = RemoteCostStatus(unknown="no tuple was local")
    few = RemoteCostStatus(unknown=FEW)
    assert line(dear, doubtful, obtainable=0.958, worth_cores=0.43) == (
        "remote tuples: head sends at 98 ± 12 us more CPU each; at most 96% can be local, to save 0.43 cores"
    )
    assert line(doubtful, unknown, obtainable=1.0, worth_cores=0.0) == (
        "remote tuples: no significant cost, head sends at -4 ± 20 us; at most 100% can be local"
    )
    assert line(unknown, unknown) == "remote tuples: their cost is unknown, no tuple was local"
    not_yet = RemoteCostStatus()
    assert line(not_yet, not_yet, obtainable=0.58) == "remote tuples: their cost is unknown; at most 58% can be local"
    assert line(dear, few) == (
        "remote tuples: head sends at 98 ± 12 us more CPU each; tail receives: not known, too few key groups differ"
    )
    assert (NO_TUPLES, FEW) == (Unknown.NO_TUPLES, Unknown.FEW)
    assert collocation_line(STATUS.apps[0]) == ""


def test_the_pool_of_each_app_is_a_line_and_its_workers_do_not_push_others_out_of_sight() -> None:
    pool = [PoolStatus(app=APP, worker=WorkerId(f"w{n}"), host=HostId(f"h{n}"), capacity=1.0) for n in (5, 6)]
    pool.append(PoolStatus(app=AppId("clicks"), worker=WorkerId("c1"), host=HostId("h1"), capacity=1.0))
    idle = [node(f"z{n}", None, state=WorkerState.AWAY, steering=False, absence=Absence.STOPPED) for n in range(40)]
    lines = shown(replace(STATUS, pool=tuple(pool), nodes=(*STATUS.nodes, *idle)), width=100)

    where = lines.index("pool")
    assert lines[where + 1 : where + 4] == [
        "  orders  2 workers can be started: w5 on h5, w6 on h6",
        "  clicks  1 worker can be started: c1 on h1",
        "",
    ]
    assert any(line.split()[:1] == ["orders-1"] for line in lines)
    assert any(line.split()[-1:] == ["stopped"] for line in lines)
    assert "pool" not in shown(STATUS)
