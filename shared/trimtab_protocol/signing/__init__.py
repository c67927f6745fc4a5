"""Ed25519 signatures: of commands and placements by the controller, of reports and acks by hosts (`hosts`).

The controller signs each record with its private key; agents and plug-ins hold the public keys that they trust.  The
signature is a Kafka header.  It covers the topic (and with it the cluster), the key (host or app) and the value, so a
record signed for one host of one cluster is refused everywhere else.  Epochs, deadlines and command ids protect against
replays.  Needs the package `cryptography`, which the extras `agent`, `faust` and `controller` install; `known_hosts`
also needs `pynacl`, which the extras `controller` and `console` install.
"""
