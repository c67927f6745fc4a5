"""What `trimtab status` says about the costs of tuples between workers."""

from collections.abc import Iterator

from trimtab_protocol.messages.status import AppStatus, CollocationStatus, RemoteCostStatus
from trimtab_protocol.wording import first_few

US = 1e6
NO_TUPLES, FEW = "no tuples between key groups", "too few key groups differ"
"""What `trimtab_models.albic.fit.Unknown` says; the command does without the models."""


def collocation_line(app: AppStatus) -> str:
    """One line: the costs with their errors, and what could be local and saved; empty if no tuples are exchanged."""
    found = app.remote_costs
    if found is None or not found.operators:
        return ""
    return f"remote tuples: {_costs(found)}{_obtainable(found)}"


def _costs(found: CollocationStatus) -> str:
    known = [(text, cost) for text, cost in _ends(found) if cost.value is not None]
    counted = [text for text, cost in known if cost.significant]
    if counted:
        return f"{first_few(counted)} more CPU each{_few(found)}"
    if known:
        return f"no significant cost, {first_few(text for text, _ in known)}"
    reasons = dict.fromkeys(cost.unknown for _, cost in _ends(found) if cost.unknown)
    told = first_few(reason for reason in reasons if reason)
    return f"their cost is unknown, {told}" if told else "their cost is unknown"  # a new leader knows no reason yet


def _few(found: CollocationStatus) -> str:
    """The ends that stay unknown, because too few key groups have tuples; in words."""
    few = [text for text, cost in _ends(found) if cost.unknown == FEW]
    return f"; {first_few(few)}: not known, {FEW}" if few else ""


def _ends(found: CollocationStatus) -> Iterator[tuple[str, RemoteCostStatus]]:
    """Each end of an operator that exchanges tuples, in words."""
    for row in found.operators:
        for way, cost in (("sends", row.sending), ("receives", row.receiving)):
            if cost.value is not None and cost.error is not None:
                yield f"{row.operator} {way} at {US * cost.value:.0f} ± {US * cost.error:.0f} us", cost
            elif cost.unknown != NO_TUPLES:
                yield f"{row.operator} {way}", cost


def _obtainable(found: CollocationStatus) -> str:
    if found.obtainable is None:
        return ""
    saved = f", to save {found.worth_cores:.2f} cores" if found.worth_cores else ""
    return f"; at most {found.obtainable:.0%} can be local{saved}"
