"""How the keys of a table's events are written, which say where the table's keys are: `"de"` and `de`, for example.

A table's key is where the event was that wrote it, and that is placed by the bytes of its own key.  Faust asks by the
bytes of the table's key, which are others with its default serializers.  So a worker learns from its writes, and until
one comes from its rows, which bytes place a table's keys.  Until then it believes how the app reads its topics.
"""

from collections.abc import Callable, Collection

from faust.utils import json

CHANCE = 0.01
"""Rows show how the keys of their table are placed if others would look like it more rarely than this."""
MAX_OTHERS = 1000
"""How many keys of a table may be written by events of other keys; beyond that nobody knows where any key is."""


def text_of(key: bytes, *, windowed: bool = False) -> bytes:
    """What a table's key says, however it is written: a string of JSON without its quotes, all else as it is."""
    if not windowed and (key[:1] != b'"' or b"\\" not in key):
        return key[1:-1] if key[:1] == b'"' else key
    try:
        found = json.loads(key)[0] if windowed else json.loads(key)  # [key, [start, end]]
    except (ValueError, TypeError, LookupError):  # not JSON
        return key
    return (found if isinstance(found, str) else _as_json(found)).encode(errors="replace")


def _as_json(value: object) -> str:
    written: str | bytes = json.dumps(value)
    return written if isinstance(written, str) else written.decode()  # orjson writes bytes


def placing(text: bytes, *, quoted: bool) -> bytes:
    """The bytes of an event's key that says this."""
    return _as_json(text.decode(errors="replace")).encode() if quoted else text


class PlacedKeys:
    """How the keys of one table's events are written: as strings of JSON (`quoted`), or as they are."""

    def __init__(self) -> None:
        self.quoted: bool | None = None
        self.newest: tuple[bytes, int] | None = None
        """Key and partition of the event that wrote last."""
        self.others: set[bytes] = set()
        """Keys that events of other keys have written."""
        self.elsewhere = False
        """Whether events lie in other partitions than those to which this app would send them."""

    def written(self, key: bytes, event_key: bytes | None, partition: int, *, windowed: bool) -> None:
        """Note a write."""
        if len(self.others) > MAX_OTHERS:
            return
        if key == event_key and (key[:1] == b'"') is self.quoted:  # as most are
            self.newest = key, partition
            return
        text = text_of(key, windowed=windowed)
        quoted = event_key != text
        its_own = event_key is not None and (not quoted or event_key == placing(text, quoted=True))
        if event_key is not None and its_own and self.quoted in (None, quoted):
            self.quoted, self.newest = quoted, (event_key, partition)
        else:
            self.others.add(text)

    def read(
        self, rows: Collection[tuple[bytes, int]], count: int, partition: Callable[[bytes], int], believed: bool | None
    ) -> bool | None:
        """Learn from rows, each a text and its partition of `count`; `partition` = where a key is sent.

        Returns how the keys are written: as `believed` where the rows do not show it, and do not show another form;
        None = unknown.
        """
        fit = [q for q in (False, True) if all(partition(placing(text, quoted=q)) == at for text, at in rows)]
        if len(fit) == 1 and CHANCE * count ** len(rows) >= 1.0:
            self.quoted = believed = fit[0]
        return believed if believed in fit else None
