"""The part of `trimtab status` about the signatures of hosts."""

from rich.text import Text

from trimtab_protocol.messages.status import Status


def signatures_text(status: Status) -> Text | None:
    """One line; None where nobody looks at the signatures."""
    found = status.signatures
    if found is None:
        return None
    text = Text(f"{found.checking}: {found.enrolled} hosts have a key")
    if found.doubted:
        revoked = dict.fromkeys(found.revoked, "its key is revoked")
        named = ", ".join(f"{host} ({revoked.get(host, fault)})" for host, fault in sorted(found.doubted.items()))
        what = "dropped" if found.enforced else "used"
        text.append(f"; in the last window reports were {what} that these had not signed: {named}", "yellow")
    if found.unsigned:
        counts = ", ".join(f"{name}: {count}" for name, count in sorted(found.unsigned.items()))
        text.append(f"; used without a good signature: {counts}", "yellow")
    return text
