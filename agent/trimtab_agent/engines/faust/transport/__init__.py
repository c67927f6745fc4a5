"""Consumer, producer and transport of Faust's aiokafka driver with the mends that make moving key groups safe.

Stock Faust 0.15.3 loses and duplicates events at rebalances and leaves wrong values in tables.  The mends, by number
(the comments in this package refer to them):

1. `getmany` hands aiokafka its live set of partitions; emptied in place during a fetch it means "all of them", and
   changelog records are taken and thrown away.  Here: a frozen copy, and an assignment waits for the fetch in flight.
2. Acked offsets are forgotten before the drain and the last commit of a rebalance.  Here: after them.
3. The last commit is skipped when a periodic one is running.  Here: it waits for that one, then commits.
4. Source partitions are opened before the seek to the committed offsets, also by a recovery that another rebalance has
   overtaken, and the drain loop seeks by itself.  Here: sources are closed from the revocation until the
   `resume_flow()` that follows this generation's `perform_seek()`; uncommitted partitions are sought too.
5. `flush()` of the producer gives up after 0.1 s and does not see the message being published.  Here: it waits.
6. A worker without partitions does not stop its flow, and processes new ones before their tables are restored.  Here:
   the flow is stopped before every assignment.
7. A worker without partitions never fetches, is taken for dead after `broker_max_poll_interval` and never rejoins.
8. With two agents on one topic, clearing the queues takes an event from one agent that the other has done; it is never
   acked.  Here: begun events are finished first.
9. A commit goes past one unfinished offset.  Here: only up to the first unfinished event.
10. A worker stopped beyond its session goes on with what it had queued.  Here: it is fenced (`fence.py`).
11. An event whose state could not be written (disk full) counts as done.  Here: the worker ends (`guarded.py`).
12. Nothing keeps a changelog from being applied to a partition that the worker itself is writing.  Here: the worker
    ends (`guarded.py`).
13. The group's leader assigns topics that its client has not heard of yet in part, and agents fail on tables whose
    changelog it does not know; their events count as done.  Here: both wait for the broker's metadata.
"""
