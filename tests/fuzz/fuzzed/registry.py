"""All decoders of single records, by name; that of the stream takes whole batches: `spark`."""

from tests.fuzz.fuzzed import files, group, host, machines, ports, sockets, wire
from tests.fuzz.fuzzed.decoder import Decoder

DECODERS: tuple[Decoder, ...] = tuple(
    decoder for part in (wire, files, host, ports, sockets, group, machines) for decoder in part.DECODERS
)


def decoder_named(name: str) -> Decoder:
    """The one with this name."""
    return next(decoder for decoder in DECODERS if decoder.name == name)
