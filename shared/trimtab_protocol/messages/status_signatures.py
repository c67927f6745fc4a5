"""Who speaks for a host, in the status: what the controller and its stream make of the hosts' signatures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from trimtab_protocol.messages.decode import Fields, check_integer, check_name
from trimtab_protocol.messages.names import HostId
from trimtab_protocol.messages.snapshot import MAX_DOUBTED

MAX_REVOKED = 1_000
"""Hosts without a key any more that one status names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureStatus:
    """What becomes of reports and acks that their host has not signed: `checking` = warn (used) or enforce (dropped).

    `enrolled` = hosts that have a key.  `unsigned` = reports and acks that were used without a good signature, by
    `topic.fault`.  `doubted` = hosts in whose name such reports came in the last window, used or not, and the fault.
    `revoked` = hosts that had a key and have none any more, at most `MAX_REVOKED`, the last ones first.
    """

    checking: str
    enrolled: int
    unsigned: Mapping[str, int] = field(default_factory=dict)
    doubted: Mapping[HostId, str] = field(default_factory=dict)
    revoked: tuple[HostId, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "unsigned", MappingProxyType(dict(self.unsigned)))
        object.__setattr__(self, "doubted", MappingProxyType(dict(self.doubted)))

    @property
    def enforced(self) -> bool:
        """Whether what a host has not signed is dropped."""
        return self.checking == "enforce"

    @property
    def document(self) -> dict[str, object]:
        """The JSON form."""
        told = {"checking": self.checking, "enrolled": self.enrolled}
        return told | {"unsigned": dict(self.unsigned), "doubted": dict(self.doubted), "revoked": list(self.revoked)}


def read_signatures(fields: Fields) -> SignatureStatus:
    """The part of the status in these fields; raises BadMessage."""
    return SignatureStatus(
        checking=fields.name("checking"),
        enrolled=fields.integer("enrolled"),
        unsigned={
            name: check_integer(count, path, 0, 2**63 - 1)
            for name, path, count in fields.members("unsigned", limit=100)
        },
        doubted={
            HostId(host): check_name(fault, path) for host, path, fault in fields.members("doubted", limit=MAX_DOUBTED)
        },
        revoked=tuple(
            HostId(check_name(host, path))
            for path, host in (fields.items("revoked", limit=MAX_REVOKED) if fields.has("revoked") else ())
        ),
    )
