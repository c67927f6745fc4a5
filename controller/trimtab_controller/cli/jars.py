"""`trimtab jars`: fetch what the broker and Spark need, so that nothing has to be fetched later."""

import argparse
from typing import TYPE_CHECKING

from trimtab_controller.jars.fetching import cache_folder, main

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: "Commands") -> None:
    """Register `jars`."""
    parser = commands.add_parser("jars", help="fetch the jars that broker and Spark need")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fetch what is missing, check everything, say where it is; the exit code."""
    code = main()
    if code == 0:
        print(f"all there, and as listed: {cache_folder()}")
    return code
