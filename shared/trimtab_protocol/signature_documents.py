"""What the console's HTTP API answers about who speaks for a host.

As in `console_documents`: times in epoch seconds; None = unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """How the controller that leads looks at the signatures of hosts: `checking` = warn or enforce, None: not at all.

    `enrolled` of `hosts` have a key; `hosts` are those that have one, had one, report, or are named in a report that
    they have not signed.  `unsigned` = reports and acks that were used without a good signature, by `topic.fault`.
    `verified`: the console has a trust file, and shows only keys that a trusted key has signed.
    """

    checking: str | None
    enrolled: int
    hosts: int
    verified: bool
    unsigned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeyRow:
    """A host and its keys, the newest first; none: it was never enrolled (`since` None), or it is revoked.

    `keys` = their ids, `fingerprints` in full as people compare them.  `since` = when that was decided, `by` = who did.
    `refused` = why the record with its keys does not count.  `doubted` = the fault of reports in its name in the last
    window, which the host has not signed.
    """

    host: str
    keys: Sequence[str] = ()
    fingerprints: Sequence[str] = ()
    since: float | None = None
    by: str | None = None
    refused: str | None = None
    doubted: str | None = None
