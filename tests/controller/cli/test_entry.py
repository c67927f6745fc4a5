"""The command line as such: help, and ends that are nobody's fault."""

import os
import subprocess
import sys

import pytest

from trimtab_controller.cli import CUT_OFF, INTERRUPTED, main
from trimtab_controller.cli import acl as command

ACL = ["acl", "--cluster", "prod"]


def test_a_command_that_is_interrupted_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupt)
    assert main(ACL) == INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_a_command_whose_output_nobody_reads_to_the_end_is_silent() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    program = f"import sys; from trimtab_controller.cli import main; sys.exit(main({ACL}))"
    done = subprocess.run([sys.executable, "-c", program], stdout=theirs, stderr=subprocess.PIPE, timeout=240)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (CUT_OFF, b"")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores: with one, numpy never has a second thread")
@pytest.mark.parametrize(("given", "alone"), [({}, True), ({"OMP_NUM_THREADS": "2"}, False)])
def test_the_controller_has_one_thread_of_numpy_unless_the_operator_says_otherwise(
    given: dict[str, str], alone: bool
) -> None:
    program = (
        "import os, sys; from trimtab_controller.cli import main; code = main(sys.argv[1:]); "
        "print(code, 'numpy' in sys.modules, len(os.listdir('/proc/self/task')), os.environ['OMP_NUM_THREADS'])"
    )
    command = [sys.executable, "-c", program, "controller", "run", "--config", "/no/such/file"]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(command, env=environment | given, capture_output=True, text=True, timeout=240, check=True)
    code, has_numpy, threads, told = done.stdout.split()
    assert (code, has_numpy, int(threads) == 1, told) == ("2", "True", alone, given.get("OMP_NUM_THREADS", "1"))


def test_the_help_of_a_command_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["drain", "--help"])
    assert "move everything off a worker, a host or a zone, then stop its workers" in capsys.readouterr().out
