"""The messages on the wire, as frozen values with strict decoders.  Uses only the standard library.

There is one module per message.  A decoder takes bytes and raises `BadMessage`, which gives the reason, the JSON path,
what was found and what was expected.  docs/reference/topics.md lists who writes and who reads what.
"""
