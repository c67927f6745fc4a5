"""Who may command: Ed25519 signatures of commands and placements.

The controller signs each record with its private key; agents and plug-ins hold the public keys that they trust.  The
signature travels as a Kafka header and covers topic (so the cluster's name), key (so the host, or the app) and value:
what was signed for one host of one cluster is refused by every other.  Replays are the business of epochs, deadlines
and command ids.  Needs the package `cryptography`, which the extras `agent`, `faust` and `controller` bring.
"""
