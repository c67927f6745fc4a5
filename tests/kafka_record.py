"""A message as confluent-kafka's methods show one, for what reads messages and needs no broker for it."""

from collections.abc import Sequence

from confluent_kafka import KafkaError

Headers = Sequence[tuple[str, bytes | None]]


class Record:
    """A record in the first partition of a topic; with an error, what comes in the place of one."""

    def __init__(
        self, topic: str, value: bytes | None = None, key: bytes | None = b"k", headers: Headers | None = None,
        *, offset: int = 0, error: KafkaError | None = None,
    ) -> None:  # fmt: skip
        self._topic, self._value, self._key, self._headers = topic, value, key, headers
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers | None:
        return self._headers

    def error(self) -> KafkaError | None:
        return self._error
