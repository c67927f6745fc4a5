"""The settings of [balance] in the status."""

from dataclasses import dataclass

from trimtab_protocol.messages.decode import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceStatus:
    """The settings of [balance] by which loads become what plans are made with: whoever predicts needs the same."""

    smoothing: float
    catch_up_s: float
    max_disk: float
    max_link: float


def read_balance(row: Fields) -> BalanceStatus:
    """The value in these fields; raises BadMessage."""
    return BalanceStatus(
        smoothing=row.number("smoothing", high=1.0),
        catch_up_s=row.number("catch_up_s"),
        max_disk=row.number("max_disk", high=1.0),
        max_link=row.number("max_link", high=1.0),
    )
