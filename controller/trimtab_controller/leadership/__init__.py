"""Who of several controllers leads: the owner of one partition in a consumer group; its lease is the group's session.

Kafka's group membership does the election, so no clock but the broker's counts, and no further service is needed.
Safety does not rest on the lease: the transactional id fences whoever still publishes (kafka/publisher.py).
"""
