"""Two cells of the fault matrix on a small cluster; `make faults` plays all, and judges how long things take, too."""

from pathlib import Path

import pytest
from rich.console import Console

from flights.demo.view import View
from tests.faults.played.cells import chosen
from tests.faults.played.halt import Halt
from tests.faults.played.runs import run_stage
from tests.faults.played.stage import Stage, StageSettings


@pytest.mark.e2e
@pytest.mark.timeout(1800)  # two minutes and a half on a quiet machine
def test_a_worker_and_the_controller_die_in_the_middle_of_rounds_and_every_promise_is_kept(tmp_path: Path) -> None:
    cells = chosen(["worker killed:release", "controller killed:decided"])
    settings = StageSettings(workers=2, key_groups=16, window_s=3.0, timed=False)

    results = run_stage(cells, Stage(settings, tmp_path, View(Console(quiet=True))), seed=1, halt=Halt())

    said = [(result.cell, result.broken, result.not_played) for result in results]
    assert said == [(cell, [], []) for cell in cells]
    assert all(result.cost is not None for result in results)
