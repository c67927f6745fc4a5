"""Who speaks for a host, in the status: what the controller and its stream make of the hosts' signatures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from trimtab_protocol.messages.codec import Most, Name
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import MAX_DOUBTED

MAX_REVOKED = 1_000
"""Hosts without a key any more that one status names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureStatus:
    """How reports and acks that their host has not signed are treated: `checking` = warn (used) or enforce (dropped).

    `enrolled` = hosts that have a key.  `unsigned` = reports and acks that were used without a good signature, by
    `topic.fault`.  `doubted` = hosts in whose name such reports came in the last window, used or not, and the fault.
    `revoked` = hosts that had a key and have none any more, at most `MAX_REVOKED`, the last ones first.
    """

    checking: Name
    enrolled: int
    unsigned: Annotated[Mapping[str, int], Most(100)] = field(default_factory=dict)
    doubted: Annotated[Mapping[HostId, Name], Most(MAX_DOUBTED)] = field(default_factory=dict)
    revoked: Annotated[tuple[HostId, ...], Most(MAX_REVOKED)] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "unsigned", MappingProxyType(dict(self.unsigned)))
        object.__setattr__(self, "doubted", MappingProxyType(dict(self.doubted)))

    @property
    def enforced(self) -> bool:
        """Whether what a host has not signed is dropped."""
        return self.checking == "enforce"
