"""`trimtab compare POLICY POLICY ...`: policies side by side on the same workload, seed and changes of the cluster."""

import argparse

from trimtab_controller.cli.simulate import add_options, run
from trimtab_models.simulation import POLICIES


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command `compare`."""
    parser = commands.add_parser("compare", help="policies side by side on the same workload and seed")
    parser.add_argument("policies", nargs="+", choices=POLICIES, metavar="POLICY", help=" | ".join(POLICIES))
    add_options(parser)
    parser.set_defaults(run=lambda args: run(args, list(dict.fromkeys(args.policies)), "compare"))
