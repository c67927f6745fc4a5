"""JoinGroup and SyncGroup data of the consumer group: Faust's fields and the plug-in's.

Stock Faust and older plug-ins ignore fields that they do not know.  A missing field counts as unknown.
"""

import base64
import zlib
from collections.abc import Collection, Sequence
from typing import Any

from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from faust.serializers.codecs import dumps

from trimtab_agent.engines.faust.group.operators import Layout
from trimtab_protocol.messages.codec import converted, document, encoded
from trimtab_protocol.messages.copies import Copy, CopyTable
from trimtab_protocol.messages.decode import (
    MAX_MESSAGE_BYTES,
    NAME_PATTERN,
    BadMessage,
    Fault,
    check_integer,
    shorten,
    step,
)
from trimtab_protocol.messages.names import NO_EPOCH, Epoch, OperatorId
from trimtab_protocol.messages.placement import MAX_OPERATORS, Placement
from trimtab_protocol.messages.report import MAX_COUNT

MAX_TOPICS = 10_000
"""Largest number of topics that a member of the group may declare."""
MAX_DIFFERENCE = 500
"""Largest length, in characters, of the leader's message on how the members differ."""

JSON_HERE = dumps("json", ["\u00e4", 1e16]).decode()
"""Faust takes orjson where it is installed, and that writes the same key in other bytes: no other worker finds it."""


class MemberData(ClientMetadata, serializer="json", include_metadata=False, namespace="@ClientMetadata"):  # type: ignore[misc, call-arg]
    """Faust's JoinGroup and SyncGroup data with the plug-in's fields; stock Faust ignores fields it does not know."""

    worker: str = ""
    epoch: list[int] = list(NO_EPOCH)  # noqa: RUF012 - Faust's models copy their defaults
    placement: str | None = None
    signatures: list[str] = []  # noqa: RUF012
    layout: dict[str, Any] | None = None
    """The member's topics: `{"named": {operator: topics}, "sources": topics, "changelogs": topics}`."""
    copies: dict[str, Any] | None = None
    """State on the member's disk of key groups that it neither owns nor follows, as `CopyTable` is written."""
    json: str = ""
    """How the member writes JSON: `JSON_HERE`; empty = unknown."""
    keeps: bool = False
    """The member goes on with `assignment` while it joins, so the leader leaves that with it."""
    generation: int = -1
    """The last one that the member has synced.  With it the data of no two joins are the same: to a follower that sends
    the same again the broker answers with the generation that there is, and the assignment of its beginning."""
    revoke: bool = False
    """Set by the leader: all give up what they have, and join again."""
    in_place: bool = False
    """Of a member: it can join in place.  Of the leader: so will all members at the next join."""
    differs: str | None = None
    """Set by the leader: why nobody hands anything over in this generation.

    The members' versions of the app differ, or several members have one name.  None = neither, or it is unknown.
    """
    addresses: dict[str, str] = {}  # noqa: RUF012
    """Set by the leader: the web address of each member, by its worker's name."""


def unknown_member() -> MemberData:
    """Data for a member whose own data cannot be read: everything about it is unknown."""
    return MemberData(assignment=ClientAssignment(actives={}, standbys={}), url="", changelog_distribution={})


def read_member(user_data: bytes) -> MemberData:
    """Decode a member's data and check the type of every field that the plug-in uses: Faust checks none.

    Raises BadMessage.
    """
    try:
        data: MemberData = MemberData.loads(user_data)
        held = (data.assignment.actives, data.assignment.standbys)
        check_integer(data.generation, "generation", -1, MAX_COUNT)
        Epoch(*(check_integer(part, "epoch", 0, MAX_COUNT) for part in data.epoch))
        texts = [data.url, data.worker, data.json, *data.signatures, *(topic for each in held for topic in each)]
        texts += [text for text in (data.placement, data.differs) if text is not None]
        texts += [text for each in data.addresses.items() for text in each]
        flags = (data.keeps, data.revoke, data.in_place)
        sound = all(isinstance(text, str) for text in texts) and all(isinstance(each, dict) for each in held)
        sound = sound and all(isinstance(flag, bool) for flag in flags)
    except BadMessage:
        raise
    except Exception as error:  # Faust's decoder and the access to missing fields raise all kinds of errors
        raise BadMessage(Fault.MALFORMED, "", shorten(error), "a member's data") from error
    if not sound:
        raise BadMessage(Fault.TYPE, "", user_data, "a member's data")
    return data


def write_layout(layout: Layout) -> dict[str, Any]:
    """Encode a layout in the form that members send."""
    return {
        "named": {operator: sorted(topics) for operator, topics in layout.named.items()},
        "sources": sorted(layout.sources),
        "changelogs": sorted(layout.changelogs),
    }


def read_layout(found: object) -> Layout:
    """Decode a layout that a member sent.  Raises BadMessage."""
    if not isinstance(found, dict) or not isinstance(found.get("named"), dict):
        raise BadMessage(Fault.TYPE, "layout", found, "an object with named, sources and changelogs")
    named = found["named"]
    if len(named) > MAX_OPERATORS or not all(isinstance(n, str) and NAME_PATTERN.fullmatch(n) for n in named):
        raise BadMessage(Fault.RANGE, "layout.named", f"{len(named)} names", f"at most {MAX_OPERATORS} names")
    try:
        return Layout(
            named={OperatorId(name): _topics(topics, f"layout.named.{name}") for name, topics in named.items()},
            sources=_topics(found.get("sources"), "layout.sources"),
            changelogs=_topics(found.get("changelogs"), "layout.changelogs"),
        )
    except BadMessage:
        raise
    except ValueError as error:
        raise BadMessage(Fault.RANGE, "layout", str(error), "operators of known topics") from error


def write_copies(copies: Sequence[Copy]) -> dict[str, Any] | None:
    """Encode a member's copies in the form that members send."""
    return document(CopyTable(tuple(copies))) or None


def read_member_copies(found: object) -> tuple[Copy, ...]:
    """Decode the copies that a member sent.  Raises BadMessage."""
    return () if found is None else converted(found, CopyTable, "copies").copies


def _topics(found: object, path: str) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(topic, str) for topic in found):
        raise BadMessage(Fault.TYPE, path, found, "a list of topics")
    if len(found) > MAX_TOPICS:
        raise BadMessage(Fault.OVERSIZED, path, f"{len(found)} topics", f"at most {MAX_TOPICS}")
    return frozenset(found)


def essence(data: MemberData) -> bytes:
    """Encode only the fields of a member that stock Faust needs."""
    known = MemberData(assignment=data.assignment, url=data.url, changelog_distribution={})
    return bytes(known.dumps())


def check_held(topic: str, held: object, partitions: Collection[int] | None) -> None:
    """Raises BadMessage unless `held` are partitions of the topic.

    `partitions` None = the topic is unknown, so only the type is checked.
    """
    if not isinstance(held, list) or not all(type(partition) is int for partition in held):
        raise BadMessage(Fault.TYPE, step(topic), held, "a list of partitions")
    if partitions and not set(held) <= set(partitions):
        raise BadMessage(Fault.RANGE, step(topic), "one that is not there", f"partitions up to {max(partitions)}")


def packed(placement: Placement) -> str:
    """Compress a placement for JoinGroup data."""
    return base64.b64encode(zlib.compress(encoded(placement), 9)).decode()


def unpacked(text: str) -> bytes:
    """The placement exactly as it was published and signed: its encoding is canonical.  Raises BadMessage."""
    try:
        return unzipped(base64.b64decode(text))
    except ValueError as error:
        raise BadMessage(Fault.MALFORMED, "placement", text[:40], "a packed placement") from error


def unzipped(compressed: bytes) -> bytes:
    """Decompress at most `MAX_MESSAGE_BYTES`.  Raises BadMessage."""
    try:
        return zlib.decompressobj().decompress(compressed, MAX_MESSAGE_BYTES)
    except zlib.error as error:
        raise BadMessage(Fault.MALFORMED, "", compressed[:40], "compressed bytes") from error
