"""Lets `faust.Topic.send()` ask the local hop first."""

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import faust

from trimtab_agent.engines.faust.local.hop import LocalHop
from trimtab_agent.engines.faust.local.readers import OutsideReaders
from trimtab_agent.engines.faust.local.settings import LocalSettings

HOP = "_trimtab_local_hop"
"""Attribute of an app that has a local hop."""

Send = Callable[..., Awaitable[Any]]


def stock_send() -> Send:
    """`Topic.send()` as Faust defines it.  From now on topics of an app with a local hop ask that first."""
    found: Any = faust.Topic.send
    stock: Any = getattr(found, "stock", found)
    if stock is found:

        @functools.wraps(stock)
        def send(self: Any, **fields: Any) -> Any:
            hop = getattr(self.app, HOP, None)
            if hop is not None and len(self.topics) == 1 and (route := hop.routes.get(self.topics[0])) is not None:
                return route.send(self, fields)
            return stock(self, **fields)

        send.stock = stock  # type: ignore[attr-defined]
        faust.Topic.send = send
    send_by_broker: Send = stock
    return send_by_broker


def local_hop(
    app: Any,
    topics: Iterable[str],
    *,
    connection: Mapping[str, Any],
    refused: Callable[[], bool],
    tell: Callable[[str], None],
    settings: LocalSettings,
) -> LocalHop:
    """Give the app a local hop for these topics.  `refused` = whether the worker is not steered.

    `tell` is called with the reason when a topic turns out not to be local.
    """
    outside = OutsideReaders(connection, app.conf.id, interval_s=settings.readers_check_s)
    hop = LocalHop(app, topics, by_broker=stock_send(), outside=outside, refused=refused, tell=tell, settings=settings)
    setattr(app, HOP, hop)
    return hop
