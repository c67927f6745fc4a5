"""`trimtab keys enroll | approve | revoke | hosts`: the keys with which hosts sign their reports and acks.

The controller's private key signs them, so these commands run where it is.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message

from trimtab_controller.cli.operator import says_yes, who
from trimtab_controller.cli.parsers import CONFIG_VARIABLE, named_config
from trimtab_controller.configuration import load
from trimtab_controller.kafka.connection import Connection, MissingTopicsError, StoppedError
from trimtab_controller.kafka.host_keys import Change, approving, change_keys, read_keys, revoking
from trimtab_controller.kafka.publisher import FencedError, PublicationError
from trimtab_controller.kafka.reader import ReadError, new_consumer, since
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.private_files import PRIVATE_MODE, replace_file
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.decode import BadMessage, check_name
from trimtab_protocol.messages.host_keys import REQUEST_HEADER, EnrollmentRequest, HostKeys, decode_request
from trimtab_protocol.messages.names import HostId, Topics
from trimtab_protocol.signing.envelope import headers_in, signatures_in
from trimtab_protocol.signing.hosts import Signed, digest_of
from trimtab_protocol.signing.keys import BadKey, KeyId, PublicKey, SigningKey, TrustedKeys, read_key
from trimtab_protocol.signing.known_hosts import KnownHosts

TOKEN_BYTES = 24
MAX_TOLD = 5
"""Requests that are named because they do not count; more are ignored without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyholder:
    """The cluster, and the controller's keys."""

    connection: Connection
    topics: Topics
    key: SigningKey
    trusted: TrustedKeys

    def change(self, change: Change) -> KnownHosts:
        """Carry out a change of the hosts' keys."""
        return change_keys(self.connection, self.topics, self.key, self.trusted, change)


def run(args: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 not possible, 2 wrong usage or configuration; the reason on standard error."""
    try:
        return int(FUNCTIONS[args.function](args, _keyholder(_path_of(args))))
    except (BadConfiguration, BadMessage) as error:
        print(f"trimtab keys: {error}", file=sys.stderr)
        return BAD_USAGE
    except (BadKey, ReadError, MissingTopicsError, FencedError, PublicationError, OSError) as error:
        print(f"trimtab keys: {error}", file=sys.stderr)
    except StoppedError:
        print("trimtab keys: Kafka does not answer", file=sys.stderr)
    except KafkaException as error:
        print(f"trimtab keys: {error.args[0].str()}", file=sys.stderr)
    return FAILED


def _path_of(args: argparse.Namespace) -> Path:
    if (path := named_config(args)) is None:
        raise BadConfiguration(f"name the cluster: --config FILE, or {CONFIG_VARIABLE}")
    return path


def run_enroll(args: argparse.Namespace, holder: Keyholder) -> int:
    """Show a token, wait for the host's request, and approve its key once."""
    host = HostId(check_name(args.host, "HOST"))
    token = secrets.token_urlsafe(TOKEN_BYTES)
    consumer = new_consumer(holder.connection, "enroll")
    try:
        consumer.assign(since(consumer, holder.topics.acks, time.time()))
        _show_token(token, host, args.token_file, args.valid)
        request = _await_request(consumer, holder.topics, host, token, time.monotonic() + args.valid)
    finally:
        consumer.close()
    if request is None:
        print(f"trimtab keys: no request came within {args.valid:g} s; the token counts no more", file=sys.stderr)
        return FAILED
    key = PublicKey(request.key)
    print(f"host {host} asks for key {key.id}\nfingerprint: {key.fingerprint}", flush=True)
    if not args.yes and not says_yes("Does the host show the same fingerprint? [y/N] "):
        print("nothing was approved; the token counts no more")
        return FAILED
    return _approve(holder, host, key)


def run_approve(args: argparse.Namespace, holder: Keyholder) -> int:
    """Approve a key that the operator has from the host itself."""
    return _approve(holder, HostId(check_name(args.host, "HOST")), read_key(args.key))


def run_revoke(args: argparse.Namespace, holder: Keyholder) -> int:
    """Let one key of a host count no more, or all."""
    host = HostId(check_name(args.host, "HOST"))
    key = None if args.key is None else KeyId(args.key)
    left = holder.change(revoking(holder.topics.cluster, host, key, who())).records[host]
    print(_described(left))
    print(
        "controllers follow within a second, the stream with its next window; with [signing] host_signatures = enforce,"
    )
    print("nothing counts from then on that no key of this host has signed")
    if not left.keys:
        print(
            f"its workers go on with what they own, and nobody can move it: stop them on {host}, and others take over"
        )
    return DONE


def run_hosts(_: argparse.Namespace, holder: Keyholder) -> int:
    """Print the keys of all hosts."""
    known, refused = read_keys(holder.connection, holder.topics, holder.trusted)
    for _host, record in sorted(known.records.items()):
        print(_described(record))
    if not known.records:
        print("no host has a key: `trimtab keys enroll HOST`")
    for host, error in sorted(refused.items()):
        print(f"{host.decode(errors='replace')}: a record that does not count: {error}", file=sys.stderr)
    return FAILED if refused else DONE


def _approve(holder: Keyholder, host: HostId, key: PublicKey) -> int:
    known = holder.change(approving(holder.topics.cluster, host, key, who()))
    print(_described(known.records[host]))
    print("next: restart the agent of this host, unless it signs with this key already")
    return DONE


def _show_token(token: str, host: HostId, path: Path | None, valid_s: float) -> None:
    if path is not None:
        replace_file(path, f"{token}\n".encode(), PRIVATE_MODE)
    print(f"token: {token if path is None else path}")
    print(
        f"on host {host}, within {valid_s:g} s: trimtab-agent enroll --config agent.toml --token-file FILE", flush=True
    )


def _await_request(
    consumer: Consumer, topics: Topics, host: HostId, token: str, deadline: float
) -> EnrollmentRequest | None:
    """The first request for the host that proves the token; None if none comes in time."""
    told = 0
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        try:
            request = _request_in(message, topics, host)
            if request is not None and request.is_proven_by(token):
                return request
            why = None if request is None else "it does not prove the token"
        except BadMessage as error:
            why = str(error)
        if why is not None and (told := told + 1) <= MAX_TOLD:
            print(f"ignored a request in the name of {host}: {why}", file=sys.stderr)
    return None


def _request_in(message: Message, topics: Topics, host: HostId) -> EnrollmentRequest | None:
    """The request of the host in a record, signed by the key that it asks for.  Raises BadMessage."""
    headers = headers_in(message)
    if message.key() != host.encode() or all(name != REQUEST_HEADER for name, _ in headers):
        return None
    request = decode_request(message.key(), message.value())
    asked = KnownHosts(topics.cluster)
    asked.take(HostKeys(cluster=request.cluster, host=host, keys=(request.key,), at=0.0, by="itself"))
    record = Signed(key=message.key(), digest=digest_of(message.value()), signatures=signatures_in(headers))
    asked.check(topics.acks, record)
    return request


def _described(record: HostKeys) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.at))
    ids = ", ".join(PublicKey(raw).id for raw in record.keys)
    return f"{record.host}: {f'key {ids}' if ids else 'revoked'}, since {when}, by {record.by}"


def _keyholder(config: Path) -> Keyholder:
    configuration = load(config)
    if configuration.signing is None:
        raise BadConfiguration(f"{config}: found no section [signing], expected its key_file and trust_file")
    key, trusted = configuration.signing.load()
    topics = Topics(configuration.cluster)
    return Keyholder(connection=Connection(kafka=configuration.kafka), topics=topics, key=key, trusted=trusted)


FUNCTIONS: dict[str, Callable[[argparse.Namespace, Keyholder], int]] = {
    "enroll": run_enroll,
    "approve": run_approve,
    "revoke": run_revoke,
    "hosts": run_hosts,
}
