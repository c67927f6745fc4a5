"""The command line `trimtab`.

Help and completion need only the standard library: a parser names the function of its command, which is imported when
the command is called.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from trimtab_controller.cli.parsers import ACTION_COMMANDS, VIEWS
from trimtab_process.exit_codes import BAD_USAGE, CUT_OFF, INTERRUPTED
from trimtab_process.extras import explain_missing

PARSERS = "trimtab_controller.cli.parsers"
COMMANDS = {
    **{name: (PARSERS, text) for name, text in (VIEWS | ACTION_COMMANDS).items()},
    "doctor": (
        "trimtab_controller.cli.doctor",
        "check this host, Kafka and the agents, and say how to fix what is wrong",
    ),
    "health": (
        "trimtab_controller.cli.health",
        "ask the controller on this host whether it works, or could take over",
    ),
    "controller": (PARSERS, "run the controller"),
    "solve": (PARSERS, "solve one instance file"),
    "simulate": (PARSERS, "play policies on a generated or recorded workload"),
    "keys": (PARSERS, "create, show and rotate the key that signs commands"),
    "acl": ("trimtab_controller.cli.acl", "print the least-privilege ACLs for each kind of client"),
    "jars": ("trimtab_controller.cli.jars", "download the jars that Spark and the sandbox's broker need (54 MB)"),
    "sample": (
        "trimtab_controller.cli.shipped",
        "print a sample configuration, a systemd unit, the alerts or a dashboard",
    ),
    "runbook": (
        "trimtab_controller.cli.shipped",
        "print a runbook: what an alert or a reason means, and what to do",
    ),
    "completion": ("trimtab_controller.cli.completion", "print a completion script for bash, zsh or fish"),
}
"""Command -> (module with `add_options(parser, command)`, help)."""
ENTRY_POINTS = "trimtab.commands"
BLAS_THREADS = "OMP_NUM_THREADS"
"""Environment variable with the number of numpy's threads.  For OpenBLAS, OPENBLAS_NUM_THREADS goes before it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (2: wrong usage or configuration, or a package is not installed)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    called = next((each for each in arguments if not each.startswith("-")), None)
    options = parser_for(called).parse_args(arguments)
    if called in COMMANDS:  # not for the sandbox, whose workers run what users wrote
        # Before numpy is imported.  The controller's children inherit it.  Our arrays are too small for more threads,
        # which spin while they wait for work.
        os.environ.setdefault(BLAS_THREADS, "1")
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's own flush fails too
        return CUT_OFF
    except ModuleNotFoundError as error:
        if (explanation := explain_missing(error, extra=getattr(options, "extra", "controller"))) is None:
            raise
        print(f"trimtab {called}: {explanation}", file=sys.stderr)
        return BAD_USAGE
    return code


def _run(options: argparse.Namespace) -> int:
    """Call the function that the parser names, directly or as `module:function`; some also get a cluster."""
    if not isinstance(options.run, str):
        return int(options.run(options))
    module, _, name = options.run.partition(":")
    function = getattr(import_module(module), name)
    if not getattr(options, "with_cluster", False):
        return int(function(options))
    from trimtab_controller.cli.operator import run_with_cluster

    return run_with_cluster(options, function)


def all_commands() -> dict[str, tuple[str, str]]:
    """Trimtab's own commands and those that installed packages register, such as `sandbox`."""
    return COMMANDS | {entry.name: entry.load() for entry in metadata.entry_points(group=ENTRY_POINTS)}


def parser_for(called: str | None, *, complete: bool = False) -> argparse.ArgumentParser:
    """A parser that knows all commands by name; the called one (`complete`: every one) also with its options."""
    parser = argparse.ArgumentParser(
        prog="trimtab",
        description="Keeps a stateful stream-processing cluster balanced while it runs.",
        epilog="`trimtab COMMAND --help` says more. Exit code 0: done; 1: not possible; "
        "2: wrong usage or file, or a package is not installed.",
    )
    parser.add_argument("--version", action="version", version=f"trimtab {metadata.version('trimtab')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    known = all_commands()
    for name, (module, text) in known.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == called or complete:
            import_module(module).add_options(command, name)
    return parser
