"""What share of each app's sends between key groups skips the broker."""

from collections import defaultdict

from trimtab_protocol.messages.names import AppId
from trimtab_protocol.messages.snapshot import Snapshot


def local_sends(snapshot: Snapshot) -> dict[AppId, float]:
    """Per app, the share of the tuples between its key groups that skipped the broker in this window.

    An app is missing if there were no such tuples, or if a plug-in that sent some does not tell.
    """
    sent: defaultdict[AppId, float] = defaultdict(float)
    direct: defaultdict[AppId, float] = defaultdict(float)
    unknown: set[AppId] = set()
    for pair in snapshot.pairs:
        app = pair.source.app
        if pair.direct_s is None:
            unknown.add(app)
        else:
            sent[app] += pair.tuples_s
            direct[app] += pair.direct_s
    return {app: min(1.0, direct[app] / total) for app, total in sent.items() if total and app not in unknown}
