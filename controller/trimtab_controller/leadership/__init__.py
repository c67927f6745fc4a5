"""Leader election: the owner of one partition in a consumer group leads, and its lease is the group's session.

Kafka's group membership elects the leader, so only the broker's clock counts and no other service is needed.  Safety
does not depend on the lease: the transactional id fences a former leader that still publishes (kafka/publisher.py).
"""
