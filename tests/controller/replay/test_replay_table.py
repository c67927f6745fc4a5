"""The table of `trimtab replay`: settings side by side, beside what was done."""

from io import StringIO

from rich.console import Console

from trimtab_controller.cli.replay import ROWS, show
from trimtab_controller.replay.outcome import Outcome
from trimtab_protocol.messages.names import AppId

APP = AppId("orders")


def outcome(moved: int | None, distance: float) -> Outcome:
    return Outcome(
        windows=2_880, load_distance_mean=distance, load_distance_p95=2 * distance, highest_p95=60.0, plans=3,
        moved=moved, paused_s=None, restored_bytes=3 << 20, reasons={"inside_band": 7},
    )  # fmt: skip


def test_each_setting_has_a_column_beside_what_was_done() -> None:
    columns = {
        "as done": {APP: outcome(10, 4.0)},
        "as configured": {APP: outcome(12, 3.0)},
        "balance.load_distance=2": {APP: outcome(40, 1.5)},
        "balance.load_distance=10,balance.max_migrations=5": {APP: outcome(None, 6.0)},
    }
    out = StringIO()
    show([APP], columns, "Monday to Tuesday", Console(file=out, width=100, highlight=False, markup=False))
    title, first, second, heading, *lines = out.getvalue().splitlines()
    assert title == "orders: 2,880 windows, Monday to Tuesday"
    assert first == "set 1: balance.load_distance=2"
    assert second == "set 2: balance.load_distance=10,balance.max_migrations=5"
    assert heading.split() == ["as", "done", "as", "configured", "set", "1", "set", "2"]
    rows = {label: next(line for line in lines if line.startswith(label)).split()[-4:] for label, _ in ROWS}
    assert rows["key groups moved"] == ["10", "12", "40", "-"]
    assert rows["load distance, mean (pp)"] == ["4.00", "3.00", "1.50", "6.00"]
    assert rows["paused (key-group seconds)"] == ["-"] * 4
    assert "as done: nothing was done for inside_band (7)" in lines
