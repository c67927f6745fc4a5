"""What the plug-in repairs in Faust 0.15.3 and aiokafka 0.14.0, by name.

Stock Faust loses and duplicates events at rebalances and leaves wrong values in tables.  Each patch below is a subclass
or a wrapped method, none is a fork.  Comments in the code name the patch that they belong to: `(patch NAME)`.
`private_names.py` lists the private names that each class of Faust and aiokafka must have for them.

| patch | stock Faust or aiokafka | with the plug-in | where |
|---|---|---|---|
| `fixed-partitions-during-fetch` | `getmany` gets the live set of partitions. Emptied during a fetch it means "all"; \
changelog records are fetched and dropped, and recovery waits for ever. | A frozen copy; an assignment waits for the \
fetch in flight. | `transport/consumer.py` |
| `offsets-kept-until-commit` | A rebalance forgets finished offsets before its last commit. | It forgets them \
afterwards. | `transport/consumer.py` |
| `last-commit-not-skipped` | The last commit is skipped while a periodic one runs. | It waits, then commits. | \
`transport/consumer.py` |
| `seek-before-sources-open` | Sources are opened before the seek to the committed offsets, also by a recovery that a \
later rebalance has overtaken. | Sources stay closed until this generation has sought, partitions without a commit \
too. | `transport/consumer.py` |
| `flush-waits-for-all` | `flush()` gives up after 0.1 s and misses the message being published. | It waits for a mark \
behind the last message. | `transport/producer.py` |
| `flow-stopped-before-assignment` | A worker without partitions keeps its flow open, and processes new partitions \
before their tables are restored. | The flow stops before every assignment. | `transport/consumer.py` |
| `idle-worker-stays-member` | A worker without partitions never fetches, leaves the group after \
`broker_max_poll_interval` and never rejoins. | It counts as fetching. | `transport/thread.py` |
| `begun-events-finished` | Clearing the queues takes an event from one agent that another agent on the same topic has \
done; it is never acknowledged and the rebalance hangs. | Begun events are finished first. | `transport/consumer.py` |
| `commit-up-to-first-gap` | A commit may pass one unfinished event. | It ends at the first unfinished one. | \
`transport/consumer.py` |
| `fence-after-session` | A worker stopped beyond its session goes on with what it had queued and overwrites the new \
owner's changelog. | It starts no event and sends nothing until it has rejoined. | `safety/fence.py` |
| `end-when-state-is-not-written` | An event whose state could not be written (disk full) counts as done. | The worker \
ends without a commit. | `safety/store_guard.py` |
| `end-before-state-is-overwritten` | A changelog may be applied to a partition that this worker writes. | The worker \
ends before that. | `safety/store_guard.py` |
| `topics-known-before-assignment` | The leader assigns only part of the topics that its client has not heard of yet; \
agents fail on tables whose changelog is unknown, and those events count as done. | Both wait for the broker's \
metadata. | `transport/metadata.py` |
"""

from enum import StrEnum


class Patch(StrEnum):
    """The names; the module's docstring says what each repairs."""

    FIXED_PARTITIONS = "fixed-partitions-during-fetch"
    OFFSETS_KEPT = "offsets-kept-until-commit"
    LAST_COMMIT = "last-commit-not-skipped"
    SEEK_FIRST = "seek-before-sources-open"
    FLUSH = "flush-waits-for-all"
    FLOW_STOPPED = "flow-stopped-before-assignment"
    IDLE_WORKER = "idle-worker-stays-member"
    BEGUN_EVENTS = "begun-events-finished"
    FIRST_GAP = "commit-up-to-first-gap"
    FENCE = "fence-after-session"
    STATE_NOT_WRITTEN = "end-when-state-is-not-written"
    STATE_OVERWRITTEN = "end-before-state-is-overwritten"
    TOPICS_KNOWN = "topics-known-before-assignment"
