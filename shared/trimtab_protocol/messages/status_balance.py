"""The settings of [balance] in the status."""

from dataclasses import dataclass
from typing import Annotated

from trimtab_protocol.messages.codec import Range

Share = Annotated[float, Range(0.0, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceStatus:
    """The settings of [balance] by which loads become what plans are made with: whoever predicts needs the same."""

    smoothing: Share
    catch_up_s: float
    max_disk: Share
    max_link: Share
