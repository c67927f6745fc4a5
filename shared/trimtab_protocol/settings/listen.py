"""`[metrics] listen = "address:port"`."""

from dataclasses import dataclass
from typing import Annotated, Any

from trimtab_protocol.messages.codec import Key, Needed, Table, WrittenAs
from trimtab_protocol.messages.decode import BadMessage, Fault, check_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Address and port of a server; an IPv6 address without brackets."""

    address: str
    port: int


def read_listen(found: object) -> Listen:
    """Address and port in one text.  Raises BadMessage.

    Port 0 is refused, because nobody would know which port to scrape.
    """
    text = check_text(found, "", 300)
    name, _, port = text.rpartition(":")
    address = name.strip("[]")
    if (
        text != found
        or not _is_address(address)
        or not (port.isascii() and port.isdecimal())
        or not 0 < int(port) < 65_536
    ):
        raise BadMessage(Fault.RANGE, "", text, "address:port, such as 127.0.0.1:9101")
    return Listen(address=address, port=int(port))


MetricsAddress = Annotated[Listen | None, WrittenAs(Any, str, read_listen), Table("metrics"), Key("listen"), Needed()]
"""The section [metrics]."""


def _is_address(text: str) -> bool:
    """Whether this can be resolved: not empty (which means all addresses), labels of 1 to 63 characters."""
    try:
        return text.isprintable() and text.encode("idna") != b""
    except UnicodeError:
        return False
