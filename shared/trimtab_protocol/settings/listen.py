"""`[metrics] listen = "address:port"`."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import BadMessage, Fault, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where something is served; an IPv6 address stands without its brackets."""

    address: str
    port: int


def read_listen(fields: Fields) -> Listen:
    """The member `listen` of a section, of which it is the only one.  Raises BadMessage.

    Port 0 is refused: nobody could know in advance where to look.
    """
    text = fields.text("listen", limit=300)
    fields.done()
    name, _, port = text.rpartition(":")
    address = name.strip("[]")
    if not _is_address(address) or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise BadMessage(Fault.RANGE, fields.at("listen"), text, "address:port, such as 127.0.0.1:9101")
    return Listen(address=address, port=int(port))


def _is_address(text: str) -> bool:
    """Whether it may be looked up: not empty (that would be every address), every label of 1 to 63 characters."""
    try:
        return text.isprintable() and text.encode("idna") != b""
    except UnicodeError:
        return False
