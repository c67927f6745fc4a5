"""The exit codes of all commands and daemons, of which people, shells and service managers know what they mean."""

import sys

DONE, FAILED = 0, 1
BAD_USAGE = 2
"""Options, a configuration or an input are wrong, or a package is not installed: it will not help to try again."""
INFEASIBLE = 3
"""`trimtab solve` and `simulate`: it is proven that there is no plan."""
FENCED = 3
"""The controller: another one has taken its place."""
INTERRUPTED, CUT_OFF = 130, 141
"""The codes that shells use for SIGINT and SIGPIPE."""


def refuse(command: str, reason: str, code: int) -> int:
    """Say why a command is not carried out; the exit code."""
    print(f"{command}: {reason}", file=sys.stderr)
    return code
