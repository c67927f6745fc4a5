"""What goes over the wire: frozen values, strict decoders, the standard library only.

One module per message; every decoder takes bytes and raises `BadMessage`, which names reason, path, what was found and
what was expected.  docs/reference/topics.md lists who writes and who reads what.
"""
