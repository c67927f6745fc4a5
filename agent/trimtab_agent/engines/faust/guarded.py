"""A worker whose tables cannot be written ends at once (mend 11).

Faust lets an exception of a store (disk full) pass through the app's agent like any other: the event counts as done,
the agent is started again, and the worker goes on without what it could not write.  Here nothing is committed or sent
from that moment on, and the worker ends: to the group it is a worker that was killed, and its last events, at most one
commit interval, are done again by others.
"""

import logging
from collections.abc import Callable
from typing import Any

from faust.stores.rocksdb import Store

from trimtab_agent.engines.faust.fence import Fence

log = logging.getLogger(__name__)


def guard_stores(app: Any, fence: Fence) -> None:
    """Watch over every write of the app's tables."""

    def guarded(write: Callable[..., None]) -> Callable[..., None]:
        def write_or_end(*arguments: Any) -> None:
            try:
                write(*arguments)
            except AssertionError:  # the app writes outside of an event: nothing is lost by that
                raise
            except Exception as error:
                if not fence.broken:
                    fence.break_off()
                    log.critical("a table cannot be written, this worker ends: %s", error)
                    app.add_future(app.crash(error))
                raise

        return write_or_end

    for table in app.tables.values():
        store = table.data
        if isinstance(store, Store):
            store._set, store._del = guarded(store._set), guarded(store._del)
