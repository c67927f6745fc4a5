"""`trimtab` called in the test's own process: a new one takes a second or two of CPU to load its packages.

Tests of the program itself (`test_doctor.py`, `test_sandbox_up.py`) start it as operators do.
"""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from trimtab_controller.cli import main


def trimtab(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command that ends by itself."""
    with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as errors:
        try:
            code = main(arguments)
        except SystemExit as ended:  # wrong usage
            code = int(ended.code or 0)
    return code, output.getvalue(), errors.getvalue()
