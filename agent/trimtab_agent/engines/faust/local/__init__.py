"""The local hop: events between agents of one worker skip the broker.

In stock Faust every `topic.send()` goes through the broker, also if the reader runs in the same worker.  With
`install(app, local=[topic])` an event of that topic is put straight into its readers' queues if this worker owns the
destination partition and the partition's gate is open.  Such an event is called *direct*.

| promise | by what | where |
|---|---|---|
| same partition as the producer's | the producer itself computes it | `hop.py` |
| nothing is lost | the event that caused a direct event counts as done only after it (`message.py`) | |
| order per source partition and key | gates, and the rule for events that go by the broker | `gate.py`, `hop.py` |
| nothing waits for ever | every wait has a limit; no wait where local topics form a circle | `hop.py` |
| a hand-over or rebalance moves no direct event | they are finished first | `consumer.py` |
| values are not shared by writer and readers | only immutable scalars go by reference | `values.py` |
| other readers of the topic miss nothing | a topic that another group reads goes by the broker | `hop.py` |

*Gates.*  Each owned partition of a local topic has a gate.  It is closed after a rebalance, when any key group arrives,
and when an event goes to the partition by the broker.  It opens when everything that may precede a direct event has
reached the readers' queues: all that was in the log when the key group arrived, and what this worker has sent since.
An event that meets a closed gate waits for a moment, then goes by the broker.  The gate is off while its key group is
being given away.

*By the broker after direct events.*  If a worker is killed, its unfinished direct events are done again from their
sources.  An event with the same key that is already in the log would then overtake them.  So an event goes by the
broker only when all direct events before it with its key are finished and what they wrote is in the log.  It waits for
that at most `settle_wait_s`; then it goes, and is counted as possibly overtaking.

*Circles.*  Agents that feed each other through local topics could wait for each other.  Which agent sends where shows
only when it sends.  The link that closes a circle uses the broker, always and without waiting.
"""
