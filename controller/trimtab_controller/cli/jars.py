"""`trimtab jars`: fetches the jars of broker and Spark ahead of their first use, and prepares Spark's classes."""

import argparse
import subprocess
import sys
from importlib.util import find_spec

from trimtab_controller.jars.fetching import cache_folder, main


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `jars`."""
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Download the missing jars, verify all, print their folder, and return the exit code."""
    code = main()
    if code == 0:
        print(f"all jars are there, with the listed checksums: {cache_folder()}", flush=True)
        if find_spec("pyspark") is not None:
            # In a process of its own: Spark writes the archive when it ends.  If that fails, starts are only slower.
            command = [sys.executable, "-m", "trimtab_controller.stream.training"]
            ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if ended.returncode:
                print("\n".join(ended.stderr.strip().splitlines()[-1:]), file=sys.stderr)  # without what Java warns of
    return code
