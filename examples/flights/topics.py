"""Creates the topics of the job that are missing: `python -m flights.topics --bootstrap HOST:PORT --key-groups 64`."""

import argparse
import sys
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from flights.wire import CHANGELOG, partitions

LIMIT_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Create them; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m flights.topics", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--key-groups", type=int, default=64)
    given = parser.parse_args(arguments)
    admin = AdminClient({"bootstrap.servers": given.bootstrap})
    new = [
        NewTopic(name, count, 1, config={"cleanup.policy": "compact"} if name == CHANGELOG else {})
        for name, count in partitions(given.key_groups).items()
    ]
    for name, created in admin.create_topics(new, operation_timeout=LIMIT_S, request_timeout=LIMIT_S).items():
        try:
            created.result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                print(f"topic {name} was not created: {error.args[0].str()}", file=sys.stderr)
                return 1
            print(f"{name} exists")
        else:
            print(f"created {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
