"""The patches of the plug-in for Faust 0.15.3 and aiokafka 0.14.0, by name.

Stock Faust loses and duplicates events at rebalances, and leaves wrong values in tables.  Each patch below is a
subclass or a wrapped method; nothing is forked.  Comments in the code name their patch: `(patch NAME)`.
`private_names.py` lists the private names of Faust and aiokafka that the patches need.

| patch | stock Faust or aiokafka | with the plug-in | where |
|---|---|---|---|
| `fixed-partitions-during-fetch` | `getmany` gets the live set of partitions. If it is emptied during a fetch, it \
means "all": changelog records are fetched and dropped, and recovery waits for ever. | `getmany` gets a frozen copy, \
and an assignment waits for the fetch in flight. | `transport/consumer.py` |
| `offsets-kept-until-commit` | A rebalance forgets finished offsets before its last commit. | It forgets them \
after the commit. | `transport/consumer.py` |
| `last-commit-not-skipped` | The last commit is skipped while a periodic one runs. | It waits for the periodic one, \
then commits. | `transport/consumer.py` |
| `seek-before-sources-open` | Sources are opened before the seek to the committed offsets, also by a recovery that a \
later rebalance has overtaken. | Sources stay closed until the seek of this generation, which includes partitions \
without a commit. | `transport/consumer.py` |
| `flush-waits-for-all` | `flush()` gives up after 0.1 s and misses the message being published. | It waits for a mark \
behind the last message. | `transport/producer.py` |
| `flow-stopped-before-assignment` | A worker without partitions keeps its flow open, and processes new partitions \
before their tables are restored. | The flow stops before every assignment. | `transport/consumer.py` |
| `idle-worker-stays-member` | A worker without partitions never fetches, leaves the group after \
`broker_max_poll_interval` and never rejoins. | It counts as fetching. | `transport/thread.py` |
| `begun-events-finished` | Clearing the queues takes an event away from one agent after another agent on the same \
topic has finished it. It is never acknowledged, and the rebalance hangs, as it does for an agent that hangs. | \
Begun events are finished first, for a limited time. | \
`transport/consumer.py` |
| `commit-up-to-first-gap` | A commit may skip an unfinished event. | It ends at the first unfinished one. | \
`transport/consumer.py` |
| `fence-after-session` | A worker that was stopped for longer than its session goes on with its queued events and \
overwrites the new owner's changelog. | It starts no event, sends nothing and leads nothing until it has rejoined. | \
`safety/fence.py`, `transport/producer.py` |
| `end-when-state-fails` | An event whose state could not be read or written (a damaged file, a full disk) counts as \
done. Reading a whole table ends at the damage, as if nothing came after it. | The worker ends without a commit, and \
restores what is damaged. | `safety/store_guard.py`, `safety/damaged.py` |
| `stand-at-refused-record` | A changelog record that the broker refuses is lost: the state is on one disk only. | Its \
partition stands and sends it again; all others go on. | `safety/refused.py`, `transport/consumer.py` |
| `stand-at-unreadable-record` | Records that are compressed by a codec without its library, or damaged, end each \
worker that is given their partition. | The partition stands; all others go on. | `transport/unreadable.py`, \
`transport/consumer.py` |
| `impossible-record-refused` | A changelog record that is larger than a request, or not bytes, ends the producer and \
the worker. | An error of the app's event, before anything is written. | `transport/producer.py` |
| `chained-agent-goes-on` | An agent that fails behind `group_by` or `through` takes no event any more, and each \
rebalance waits for those that it has. With `take` it loses one, or gets those of its first topic; a record that \
cannot be decoded, or a processor that fails, ends it without a word. If two of its actors fail at once, the worker \
ends. | It goes on behind them. | \
`transport/chained.py` |
| `key-none-kept` | A table's key None is written to the disk, and to the changelog as a record without a key. The \
broker refuses that, and all records of other keys in the same batch. | It has the key that it has on the disk. | \
`safety/store_guard.py` |
| `late-write-refused` | A task that has kept its event writes a table after its partition has left, and overwrites \
the new owner's values. | An error in the task. | `safety/store_guard.py`, `transport/consumer.py` |
| `go-on-after-refusal` | The broker refuses all records of a partition after one that it has refused, because an \
idempotent producer has counted that one. | The next record gets its number. | `transport/producer.py` |
| `leaders-not-forgotten` | A producer knows all topics from its start, until it meets a new one, such as a changelog \
that was made later. Then it forgets the leaders of the others, and a full batch for one of them waits for 20 minutes \
and holds up all other records. | It asks for each topic that it writes to. | `transport/producer.py` |
| `end-before-state-is-overwritten` | A changelog may be applied to a partition that this worker writes. | The worker \
ends before that. | `safety/store_guard.py` |
| `end-before-foreign-state-is-written` | After partitions were added to a source topic of a table, two workers may \
write one table partition. Where Faust notices, the event counts as done. | The worker ends before that, and before an \
event reads a table that operators have put elsewhere. | \
`safety/store_guard.py` |
| `end-while-the-broker-is-away` | A worker that is told to stop while a fetch waits to be repeated loses its \
consumer's thread, and waits for it for 60 s. | The fetch ends like any other. | `transport/lost_inputs.py` |
| `replies-acknowledged` | The topic with the answers to `ask()` has two queues, and nobody reads one of them.  Its \
messages are never acknowledged, and a rebalance waits for them without end. | It has the queue that is read. | \
`transport/consumer.py` |
| `asking-not-waited-for` | A rebalance waits for an agent that asks another one. During a rebalance no question is \
read and no answer: it waits without end. | It goes on, and the event is read again after it. | \
`transport/consumer.py` |
| `failed-event-done` | An agent that acknowledges by hand (`noack`) and fails never acknowledges its event, nor does \
one whose stream fails before it (`stream.filter`), or that awaits what was cancelled. Commits \
skip it, but each later rebalance waits for it without end. A schema of the app's own that raises another error than \
Faust's ends worker after worker. | The event counts as done, like that of any agent that fails, once no other agent \
has it. | \
`transport/consumer.py` |
| `standby-records-kept` | The queue of changelog records is emptied once more when the sources open. By then it has \
records of standbys in it, and those after them are applied: the standby lacks some changes, and whoever restores from \
it writes old state. | The queue is emptied once for each assignment, before anything is read. | \
`transport/consumer.py` |
| `bootstrap-again` | A client never asks its bootstrap servers again. After all brokers that it knows have got new \
addresses, it tries the old ones for ever. | When none of them answers, it asks the bootstrap servers. | \
`transport/client.py` |
| `brokers-awaited` | A worker ends with a traceback if Kafka is away, or takes connections and answers nothing, when \
it connects or makes topics. Told to stop while it waits for an answer, it takes a minute. | It waits, says for what \
and for which broker, and stops at once. | `transport/client.py`, `transport/producer.py`, `transport/consumer.py`, \
`transport/thread.py` |
| `questions-apart` | A worker's thread does two things at a time. Two questions about logs whose broker does not \
answer keep it for `broker_request_timeout` (90 s): it fetches and commits nothing, also of others. | They are asked \
beside. | `transport/thread.py` |
| `restore-awaits-broker` | A restore that a broker does not answer within `broker_request_timeout` (90 s) ends the \
recovery for good: the worker stays in the group, and does nothing any more, whatever comes. | It asks again until the \
broker answers, or the next rebalance begins. | `transport/consumer.py` |
| `rights-awaited` | A commit that Kafka does not let the app do ends the worker, and so does a group that it may not \
use, or that has members which are no Faust. | It tries again. | `transport/thread.py`, `transport/consumer.py` |
| `deleted-topic-not-awaited` | A commit with an offset of a topic that has been deleted is repeated without end, and \
nothing else is committed. Records for it are kept for 20 minutes, and a flush waits for them. | The offset is left \
out, and buffered outputs are given up after 20 s. A changelog is made again. | `transport/thread.py`, \
`transport/producer.py` |
| `leader-not-awaited` | A rebalance waits for records whose partition has no leader. Longer than \
`broker_rebalance_timeout`, and all workers are out of the group. | It drops them after a quarter of that, and does \
their events again. | `transport/producer.py`, `transport/consumer.py` |
| `silent-leader-not-awaited` | A rebalance waits for records whose leader one worker does not reach, until the group \
puts that worker out. It joins again at once, and what it had sent may arrive late, over what others write. | After a \
quarter of `broker_rebalance_timeout` it resets its connections and leaves the group, and joins again when the leader \
answers. | `transport/consumer.py`, `transport/producer.py`, `transport/client.py` |
| `topics-known-before-assignment` | The leader leaves topics unassigned that its client does not know yet. Agents \
fail on tables whose changelog is unknown, and those events count as done. | Leader and joining worker wait for the \
broker's metadata. | `transport/metadata.py` |
| `recovery-ends-at-position` | A recovery ends with a changelog's last record. Where a transaction's marker, an \
aborted or a removed record is the last, it waits for ever. | It ends when the consumer's position has reached the \
end. | `transport/consumer.py` |
| `restored-as-stored` | A recovery decodes each record, by the types that the app has now, and leaves out what it \
cannot decode. With `recovery_buffer_size=1` a worker applies its own records, and overwrites newer values. | It \
applies the bytes, once. | `transport/consumer.py` |
| `no-aborted-state` | An app that was `exactly_once` restores records of aborted transactions. | It leaves them out. \
| `transport/thread.py` |
| `windows-closed-once` | A worker expires the windows that it has written itself, in the first open database that has \
the key, and not in the changelog. Restored windows stay for ever, and `on_window_close` is called only for windows \
that begin after all that were closed before, of whatever partition. | The owner of a partition closes each of its \
windows once, in its database and changelog. | `tables/windows.py` |
| `own-partitions-answer` | Deletions, and reads outside of an event, take any open database that has the key: that of \
another partition, of a standby, or of what was given away. `keys()` and `items()` fail when one is opened or closed \
meanwhile. | An event deletes in its own partition, and active partitions answer. | `tables/own_partitions.py` |
"""

from enum import StrEnum


class Patch(StrEnum):
    """Names of the patches.  The module docstring says what each repairs."""

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
    STATE_FAILS = "end-when-state-fails"
    STANDS = "stand-at-refused-record"
    UNREADABLE = "stand-at-unreadable-record"
    IMPOSSIBLE = "impossible-record-refused"
    CHAINED = "chained-agent-goes-on"
    KEY_NONE = "key-none-kept"
    LATE_WRITE = "late-write-refused"
    AFTER_REFUSAL = "go-on-after-refusal"
    LEADERS_KEPT = "leaders-not-forgotten"
    STATE_OVERWRITTEN = "end-before-state-is-overwritten"
    FOREIGN_STATE = "end-before-foreign-state-is-written"
    END_WITHOUT_BROKER = "end-while-the-broker-is-away"
    REPLIES = "replies-acknowledged"
    ASKING = "asking-not-waited-for"
    FAILED_DONE = "failed-event-done"
    STANDBY_KEPT = "standby-records-kept"
    REBOOTSTRAP = "bootstrap-again"
    AWAITED = "brokers-awaited"
    QUESTIONS_APART = "questions-apart"
    RESTORE_AWAITS = "restore-awaits-broker"
    RIGHTS = "rights-awaited"
    DELETED = "deleted-topic-not-awaited"
    LEADER = "leader-not-awaited"
    SILENT_LEADER = "silent-leader-not-awaited"
    TOPICS_KNOWN = "topics-known-before-assignment"
    ENDS_AT_POSITION = "recovery-ends-at-position"
    AS_STORED = "restored-as-stored"
    NOT_ABORTED = "no-aborted-state"
    WINDOWS_CLOSED = "windows-closed-once"
    OWN_PARTITIONS = "own-partitions-answer"
