"""`trimtab jars`: fetches the jars of broker and Spark ahead of their first use."""

import argparse
from typing import TYPE_CHECKING

from trimtab_controller.jars.fetching import cache_folder, main

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: "Commands") -> None:
    """Register `jars`."""
    parser = commands.add_parser("jars", help="download the jars that Spark and the sandbox's broker need (54 MB)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Download the missing jars, verify all, print their folder, and return the exit code."""
    code = main()
    if code == 0:
        print(f"all jars are there, with the listed checksums: {cache_folder()}")
    return code
