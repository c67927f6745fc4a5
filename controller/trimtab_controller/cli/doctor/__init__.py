"""`trimtab doctor`: `host` and `cluster` do the I/O; `host_checks`, `cluster_checks` and `agent_checks` judge."""

import argparse

from trimtab_controller.cli.parsers import add_config


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `doctor`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "It checks, in this order: configuration, Java, jars, broker, rights (as `trimtab acl` prints them),\n"
        "topics, clocks, agents, changelogs of the apps, signing keys, checkpoint directory, metrics port, leader.\n"
        "Run it on the controller's host, as the controller's user. It changes nothing, and each check has a\n"
        "time limit.\n\n"
        "ok: fine. warning: works, but look at it. fault: fix it. not checked: it says why.\n"
        "Exit code 0: no fault; 1: at least one fault; 2: wrong usage, or a package is not installed."
    )
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run="trimtab_controller.cli.doctor.command:run")
