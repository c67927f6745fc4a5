"""The command line `trimtab`.  Only the module of the called command is imported: `--help` needs no Kafka, no numpy."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

INTERRUPTED, CUT_OFF = 130, 141
"""As shells have it, for SIGINT and SIGPIPE."""
OPERATOR = "trimtab_controller.cli.operator"
COMMANDS = {
    "status": (OPERATOR, "nodes, loads, plan in flight, last decisions with their reasons"),
    "plan": (OPERATOR, "what the controller would do now; changes nothing"),
    "snapshot": (OPERATOR, "the present cluster as an instance file for `trimtab solve`"),
    "drain": (OPERATOR, "empty a worker, then stop it"),
    "undrain": (OPERATOR, "take a drain back"),
    "forget": (OPERATOR, "an app, or a worker's name, that is gone for good"),
    "pause": (OPERATOR, "decide nothing new; a plan in flight ends"),
    "resume": (OPERATOR, "take the pause back, or end a hold"),
    "controller": ("trimtab_controller.cli.controller", "run the controller"),
    "solve": ("trimtab_controller.cli.solve", "solve one instance file"),
    "simulate": ("trimtab_controller.cli.simulate", "rounds of a policy on a generated or recorded workload"),
    "compare": ("trimtab_controller.cli.compare", "policies side by side on the same workload and seed"),
    "keys": ("trimtab_controller.cli.keys", "the key that commands are signed with"),
    "acl": ("trimtab_controller.cli.acl", "the least-privilege rules for agent, worker, controller and reader"),
    "jars": ("trimtab_controller.cli.jars", "fetch the jars that broker and Spark need"),
}
"""Command -> (module with `add_parser(commands)`, help)."""
ENTRY_POINTS = "trimtab.commands"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code (2: wrong usage or configuration)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    called = next((each for each in arguments if not each.startswith("-")), None)
    options = _parser(called).parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's own flush fails too
        return CUT_OFF
    return code


def all_commands() -> dict[str, tuple[str, str]]:
    """Our own commands and those that installed packages register, such as `sandbox`."""
    return COMMANDS | {entry.name: entry.load() for entry in metadata.entry_points(group=ENTRY_POINTS)}


def _parser(called: str | None) -> argparse.ArgumentParser:
    """A parser that knows all commands by name, and the called one completely."""
    parser = argparse.ArgumentParser(
        prog="trimtab",
        description="Keeps a stream-processing cluster on an even keel.",
        epilog="`trimtab COMMAND --help` says more. Exit code 0: done; 1: not possible; 2: wrong usage or file.",
    )
    parser.add_argument("--version", action="version", version=f"trimtab {metadata.version('trimtab')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    known = all_commands()
    called_module = known.get(called or "", (None, ""))[0]
    seen: set[str] = set()
    for name, (module, text) in known.items():
        if module != called_module:
            commands.add_parser(name, help=text)
        elif module not in seen:
            seen.add(module)
            import_module(module).add_parser(commands)
    if called in known:
        commands.choices[called].description = known[called][1]
    return parser
