"""`trimtab acl`: the least-privilege rules of Kafka's authorizer for one Trimtab cluster."""

import argparse
import json
import sys
from dataclasses import asdict

from trimtab_controller.security.acl import AppTopics, Role, Rules, commands
from trimtab_process.exit_codes import BAD_USAGE, DONE
from trimtab_protocol.messages.decode import NAME_PATTERN
from trimtab_protocol.messages.names import AppId, Topics


def add_options(parser: argparse.ArgumentParser, command: str) -> None:
    """Add those of `acl`."""
    parser.add_argument("--cluster", required=True, metavar="NAME", help="the name of the cluster")
    parser.add_argument("--role", action="append", choices=list(Role), help="only this role (repeat for more)")
    for role in Role:
        text = "who connects in this role (default: User:trimtab-ROLE)"
        parser.add_argument(f"--{role}", default=f"User:trimtab-{role}", metavar="PRINCIPAL", help=text)
    parser.add_argument("--app", metavar="ID", help="id of the workers' Faust app, for its group and its own topics")
    parser.add_argument(
        "--reads", action="append", default=[], metavar="TOPIC", help="a topic that the app reads (repeat for more)"
    )
    parser.add_argument(
        "--writes", action="append", default=[], metavar="TOPIC", help="a topic that the app writes (repeat for more)"
    )
    parser.add_argument(
        "--bootstrap",
        default="localhost:9092",
        metavar="HOST:PORT",
        help="the brokers in the printed commands (default: localhost:9092)",
    )
    parser.add_argument("--json", action="store_true", help="print the rules as JSON instead of kafka-acls commands")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rules; nothing is changed."""
    for name in (args.cluster, *([args.app] if args.app else [])):
        if not NAME_PATTERN.fullmatch(name):
            print(f"trimtab acl: found {name!r}, expected letters, digits, '.', '_' and '-'", file=sys.stderr)
            return BAD_USAGE
    if (args.reads or args.writes) and not args.app:
        print("trimtab acl: --reads and --writes need --app ID", file=sys.stderr)
        return BAD_USAGE
    apps = (AppTopics(app=AppId(args.app), reads=tuple(args.reads), writes=tuple(args.writes)),) if args.app else ()
    rules = Rules(topics=Topics(args.cluster), apps=apps)
    roles = [Role(name) for name in args.role or Role]
    principals = {role: getattr(args, role) for role in roles}
    if args.json:
        rows = [{**asdict(rule), "principal": principals[role]} for role in roles for rule in rules.of(role)]
        print(json.dumps(rows, indent=1))
        return DONE
    for role in roles:
        print(f"# {role}: {principals[role]}")
        for line in commands(rules.of(role), principal=principals[role], bootstrap_servers=args.bootstrap):
            print(line)
    return DONE
