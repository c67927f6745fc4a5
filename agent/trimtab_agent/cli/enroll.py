"""`trimtab-agent enroll`: makes this host's key, and asks the operator to approve it.

The private key never leaves the host.  The request has the public key and proves that this host knows the token; the
token itself is not in it.
"""

import os
import sys
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from trimtab_agent.configuration import AgentConfiguration
from trimtab_process.credential_files import load_or_make_key
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED
from trimtab_process.kafka_errors import NO_TOPIC_YET, UNKNOWN_TOPIC, error_text
from trimtab_process.private_files import read_private
from trimtab_protocol.messages.codec import encoded
from trimtab_protocol.messages.host_keys import REQUEST_HEADER, EnrollmentRequest, proof_of
from trimtab_protocol.messages.names import THE_PARTITION, Topics
from trimtab_protocol.settings.kafka import for_librdkafka
from trimtab_protocol.signing.hosts import HostSigner
from trimtab_protocol.signing.keys import ALGORITHM, BadKey, SigningKey, write_key

TOKEN_VARIABLE = "TRIMTAB_ENROLLMENT_TOKEN"  # noqa: S105 - a name
SEND_LIMIT_S = 30.0
"""How long the broker may take to store the request."""


def run_enroll(configuration: AgentConfiguration, token_file: Path | None) -> int:
    """Make the key unless it is there; with a token, send the request.  Returns the exit code."""
    if configuration.key is None:
        print("found no [signing] in the configuration, expected its key_file", file=sys.stderr)
        return BAD_USAGE
    try:
        token = _read_token(token_file)
        key = load_or_make_key(configuration.key)
    except (BadKey, OSError, UnicodeDecodeError) as exc:
        print(f"trimtab-agent enroll: {exc}", file=sys.stderr)
        return BAD_USAGE
    print(f"host {configuration.host}, key {key.public.id}: private half in {configuration.key} (mode 0600)")
    print(f"fingerprint: {key.public.fingerprint}")
    if not token:
        print(f"next, on the controller's host: trimtab keys approve {configuration.host} {write_key(key.public)}")
        return DONE
    fault = _send(configuration, key, token)
    if fault is not None:
        print(f"trimtab-agent enroll: the request was not sent: {fault}", file=sys.stderr)
        return FAILED
    print("the request was sent: `trimtab keys enroll` shows the same fingerprint; approve it there")
    return DONE


def _read_token(path: Path | None) -> str:
    """The token in the file (`-`: standard input), or in the environment; empty if there is none."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    return (sys.stdin.read() if str(path) == "-" else read_private(path)).strip()


def _send(configuration: AgentConfiguration, key: SigningKey, token: str) -> str | None:
    """Send the request, signed by the new key; why that failed, or None."""
    proof = proof_of(token, configuration.cluster, configuration.host, key.public.raw)
    request = EnrollmentRequest(cluster=configuration.cluster, host=configuration.host, key=key.public.raw, proof=proof)
    topic, value = Topics(configuration.cluster).acks, encoded(request)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    limit = {"message.timeout.ms": round(SEND_LIMIT_S * 1000), "topic.metadata.propagation.max.ms": 3000}
    limit["log_level"] = 0
    try:
        producer = Producer({**for_librdkafka(configuration.kafka), **limit})
        headers = [HostSigner(key, configuration.host).sign(topic, value), (REQUEST_HEADER, ALGORITHM.encode())]
        producer.produce(
            topic, value, configuration.host, partition=THE_PARTITION, headers=headers, on_delivery=delivered
        )
        left = producer.flush(SEND_LIMIT_S + 1.0)
    except KafkaException as exc:
        return error_text(exc)
    if failures:
        return f"{topic}: {NO_TOPIC_YET}" if failures[0].code() in UNKNOWN_TOPIC else str(failures[0].str())
    return f"no answer within {SEND_LIMIT_S:g} s" if left else None
