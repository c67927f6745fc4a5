"""The limit of open files is raised, and compared with what databases need."""

import subprocess
import sys

import pytest

from trimtab_agent.engines.faust.safety.open_files import TooFewFiles, files_doubt
from trimtab_protocol.messages.reason_text import reason_text


def test_a_worker_that_would_run_out_of_files_says_both_numbers() -> None:
    with pytest.raises(TooFewFiles, match=r"may have 1024 files open, but the 512 databases .* need 2760 or more"):
        files_doubt(named=512, in_all=512, limit=1024)


def test_what_suffices_for_what_is_placed_here_and_not_for_all_is_told() -> None:
    doubt = files_doubt(named=100, in_all=512, limit=1024)

    assert doubt == "few open files: 1024 allowed, all 512 databases of the app may need 2760 after losses"
    assert doubt == reason_text(doubt)
    assert files_doubt(named=100, in_all=512, limit=4096) is None


def test_the_limit_is_raised_as_far_as_it_goes() -> None:
    code = (
        "import resource as r; from trimtab_agent.engines.faust.safety.open_files import raise_limit;"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 700)); raise_limit(); print(*r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["700", "700"]
