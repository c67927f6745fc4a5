"""Who speaks for a host, as the status shows it."""

from trimtab_controller.loop.inbox import Inbox
from trimtab_protocol.messages.status import MAX_REVOKED, SignatureStatus
from trimtab_protocol.signing.hosts import HostChecking


def signature_status(inbox: Inbox) -> SignatureStatus | None:
    """What is known of the hosts' signatures; None: nobody looks at them."""
    if inbox.checking is HostChecking.OFF:
        return None
    return SignatureStatus(
        checking=str(inbox.checking),
        enrolled=len(inbox.known_hosts.enrolled),
        unsigned={f"{topic}.{fault}": count for (topic, fault), count in inbox.unsigned.items()},
        doubted=inbox.doubted,
        revoked=inbox.known_hosts.revoked[:MAX_REVOKED],
    )
