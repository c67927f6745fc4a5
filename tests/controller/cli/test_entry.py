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


def test_the_help_of_a_command_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["drain", "--help"])
    assert "move everything off a worker, a host or a zone, then stop its workers" in capsys.readouterr().out
