"""All decoders, by name."""

from fuzzed import files, machines, ports, wire
from fuzzed.decoder import Decoder

DECODERS: tuple[Decoder, ...] = (*wire.DECODERS, *files.DECODERS, *ports.DECODERS, *machines.DECODERS)


def decoder_named(name: str) -> Decoder:
    """The one with this name."""
    return next(decoder for decoder in DECODERS if decoder.name == name)
