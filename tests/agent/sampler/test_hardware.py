"""The type of a host, and the speed of its cores."""

from pathlib import Path

import pytest

from trimtab_agent.sampler.hardware import RECORDS, RECORDS_PER_S, RUNS, find_type, measure_speed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) CPU @ 2.20GHz\n", "Intel-R-Xeon-R-CPU-2.20GHz-x8"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", None),
        ("model name\t: " + "x" * 500, "x" * 100 + "-x8"),
    ],
)
def test_the_type_is_the_model_of_the_cpu_and_the_number_of_cores(
    text: str, expected: str | None, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert find_type(8.0, tmp_path) == expected
    assert find_type(8.0, tmp_path / "nowhere") is None


def test_the_fastest_run_gives_the_speed() -> None:
    run_s = RECORDS / RECORDS_PER_S
    seconds = [3 * run_s, 0.5 * run_s, *[2 * run_s] * RUNS]
    times = iter([time for run, each in enumerate(seconds) for time in (run, run + each)])
    assert measure_speed(lambda: next(times)) == pytest.approx(2.0)
