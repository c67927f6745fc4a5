"""`trimtab keys init | show | rotate`: the key that the controller signs with, and the trust file for the hosts."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from trimtab_controller.configuration import load
from trimtab_controller.kafka.connection import REQUEST_LIMIT_S, Connection, StoppedError
from trimtab_controller.kafka.host_keys import change_keys, sign_again
from trimtab_controller.kafka.placements import placements_signed_by
from trimtab_controller.kafka.publisher import FencedError
from trimtab_controller.kafka.reader import ReadError, drain, reading, starts
from trimtab_controller.security.keys import KeyFiles
from trimtab_process.credential_files import load_signing_key, load_trust
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.kafka_errors import error_text
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.names import Topics
from trimtab_protocol.signing.keys import BadKey
from trimtab_protocol.wording import first_few

UNSEEN = "with --key-file and --trust-file instead of --config, placements are not checked"


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    try:
        return int(FUNCTIONS[args.function](args, _files(args)))
    except BadConfiguration as error:
        print(f"trimtab keys: {error}", file=sys.stderr)
        return BAD_USAGE
    except BadKey as error:
        print(f"trimtab keys: {error}", file=sys.stderr)
        return FAILED


def run_init(_: argparse.Namespace, files: KeyFiles) -> int:
    """Create both files."""
    key = files.create()
    print(f"key {key.public.id}: private half in {files.key} (mode 0600), public half in {files.trust}")
    print(f"next: copy {files.trust} to all hosts; [signing] in controller.toml, [trust] in agent.toml, TRIMTAB_TRUST")
    return DONE


def run_show(_: argparse.Namespace, files: KeyFiles) -> int:
    """Print the ids of the keys, and no secrets."""
    signing = load_signing_key(files.key).public.id
    trusted = load_trust(files.trust).by_id
    print(f"signs:   {signing}  {files.key}")
    if files.next.exists():
        print(f"next:    {load_signing_key(files.next).public.id}  {files.next}")
    for key_id in trusted:
        print(f"trusted: {key_id}  {files.trust}")
    if signing not in trusted:
        raise BadKey(f"{files.trust}: key {signing} is not in it: all hosts would refuse what it signs")
    return DONE


def run_rotate(args: argparse.Namespace, files: KeyFiles) -> int:
    """Carry out one step of a rotation."""
    match args.step:
        case "begin":
            key = files.begin()
            then = f"copy {files.trust} to all hosts (they notice by themselves), then `trimtab keys rotate switch`"
        case "switch":
            key = files.switch()
            then = "restart the controller, which signs its placements again, then `trimtab keys rotate finish`"
        case _:
            if args.config is not None:
                _check_placements(args.config, files)
                _sign_hosts_again(args.config, files)
            key = files.finish()
            then = f"copy {files.trust} to all hosts: what the old key signed is refused from then on"
    print(f"{args.step}: key {key.public.id}\nnext: {then}")
    return DONE


def _check_placements(config: Path, files: KeyFiles) -> None:
    """Raise BadKey if another key has signed a placement, since its workers would refuse it after `finish`."""
    configuration = load(config)
    topics = Topics(configuration.cluster)
    try:
        with reading(Connection(kafka=configuration.kafka), "keys") as consumer:
            found = drain(consumer, starts(consumer, [topics.placement]))
    except (KafkaException, ReadError) as error:
        raise BadKey(f"the placements could not be checked: {error_text(error)}; {UNSEEN}") from error
    key, trusted = files.load()
    signers = placements_signed_by(found, topics, trusted)
    older = [(app, sorted(keys - {key.public.id})) for app, keys in signers.items()]
    if others := [f"{app} (key {', '.join(keys)})" for app, keys in older if keys]:
        raise BadKey(
            f"found placements signed by an older key, expected key {key.public.id}: {first_few(others)}; "
            "the leading controller signs them again when it is restarted after `switch`"
        )


def _sign_hosts_again(config: Path, files: KeyFiles) -> None:
    """Sign the keys of the hosts with the present key, or nobody would trust them after `finish`."""
    configuration = load(config)
    topics, connection = Topics(configuration.cluster), Connection(kafka=configuration.kafka)
    key, trusted = files.load()
    try:
        if topics.keys in AdminClient(connection.client("trimtab-keys")).list_topics(timeout=REQUEST_LIMIT_S).topics:
            change_keys(connection, topics, key, trusted, sign_again)
    except (KafkaException, ReadError, FencedError, StoppedError) as error:
        raise BadKey(f"the keys of the hosts could not be signed again: {error_text(error)}") from error


def _files(args: argparse.Namespace) -> KeyFiles:
    if args.key_file is not None and args.trust_file is not None:
        return KeyFiles(key=args.key_file, trust=args.trust_file)
    if args.config is None:
        raise BadConfiguration("name the keys: --key-file FILE and --trust-file FILE, or --config FILE")
    if (signing := load(args.config).signing) is None:
        raise BadConfiguration(f"{args.config}: found no section [signing], expected its key_file and trust_file")
    return signing


FUNCTIONS: dict[str, Callable[[argparse.Namespace, KeyFiles], int]] = {
    "init": run_init,
    "show": run_show,
    "rotate": run_rotate,
}
