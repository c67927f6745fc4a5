"""`trimtab-agent`: run the agent, check its configuration, ask for its health, enroll the host.

Help needs the standard library alone.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from trimtab_process.exit_codes import BAD_USAGE
from trimtab_process.extras import explain_missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 ended in order; 1 a fault while running; 2 wrong configuration, or a package is not installed."""
    options = agent_parser().parse_args(arguments)
    try:
        from trimtab_agent.cli.commands import run_command

        return run_command(options.command, options.config, token_file=options.token_file)
    except ModuleNotFoundError as error:
        if (explanation := explain_missing(error, extra="agent")) is None:
            raise
        print(f"trimtab-agent {options.command}: {explanation}", file=sys.stderr)
        return BAD_USAGE


def agent_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="trimtab-agent",
        description="Measures the workers of this host, reports, and carries out the controller's commands.",
        epilog="Exit code 0: ended in order; 1: a fault while running; "
        "2: wrong usage or configuration, or a package is not installed.",
    )
    parser.add_argument("--version", action="version", version=f"trimtab-agent {version('trimtab')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="run | check | health | enroll")
    for name, text in (
        ("run", "run until SIGTERM"),
        ("check", "check the configuration and show what it means on this host; starts nothing"),
        ("health", "ask the agent on this host whether it reaches Kafka; exit code 1 if not"),
        ("enroll", "make the key with which this host signs, and ask to approve it"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="agent.toml")
        command.set_defaults(token_file=None)
    text = "the token of `trimtab keys enroll`: a file of mode 0600, or - for standard input; "
    text += "otherwise TRIMTAB_ENROLLMENT_TOKEN; without a token the key is shown for `trimtab keys approve`"
    command.add_argument("--token-file", type=Path, metavar="FILE", help=text)
    return parser
