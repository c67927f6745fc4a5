"""Reasons in reports: a text that both Python and Spark SQL can tell from what is none."""

import re
from typing import Annotated

from trimtab_protocol.messages.codec import Text

REASON_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9 .,:;%/()+<>=_*'-]{0,199}")
"""A reason in a report.  Spark SQL reads other JSON types as text too; this pattern tells real reasons from them."""
WORKERS_DIFFER = "workers differ in their topics, tables or operators"
"""How the reason of every worker begins while the workers of an app run versions that nothing may move between."""
_NOT_IN_REASONS = re.compile(r"[^A-Za-z0-9 .,:;%/()+<>=_*'-]")
_SIMILAR = str.maketrans('"`[]{}', "''()()")


def reason_text(text: str) -> str:
    """The text as a report can hold it: at most 200 characters, all allowed by `REASON_PATTERN`.

    Other brackets and quotes become similar ones that are allowed; any other character becomes `_`.
    """
    fitting = _NOT_IN_REASONS.sub("_", text.translate(_SIMILAR))[:200]
    return fitting if REASON_PATTERN.fullmatch(fitting) else f"reason {fitting}"[:200].rstrip()


Reason = Annotated[str, Text(200, REASON_PATTERN, "letters, digits, spaces and .,:;%/()+<>=_*'-")]
"""A text that `reason_text` could return."""
