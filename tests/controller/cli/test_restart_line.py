"""What `trimtab status` says of a rolling restart."""

from dataclasses import replace

from trimtab_controller.cli.status import restart_line
from trimtab_protocol.messages.names import AppId, HostId, WorkerId
from trimtab_protocol.messages.status import AppStatus, RestartStatus


def line(restart: RestartStatus | None) -> str:
    app = AppStatus(app=AppId("orders"), key_groups=None, load_distance=None, mean_load=None, not_ready=None)
    return restart_line(replace(app, restart=restart))


def test_it_says_how_far_it_is_whom_it_leaves_out_and_what_it_waits_for() -> None:
    assert line(None) == ""
    plain = RestartStatus(workers=3, done=1, host=HostId("h1"), skipped=(WorkerId("w2"),))
    assert line(plain) == "rolling restart: 1 of 3 workers, now those on h1; left out: w2"
    assert line(
        replace(plain, skipped=(), differ="workers differ: w1 against w0", waits="w1 is not back: it is away")
    ) == (
        "rolling restart: 1 of 3 workers, now those on h1; without a drain, since nothing may move: "
        "workers differ: w1 against w0; waits: w1 is not back: it is away"
    )
