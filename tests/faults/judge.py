"""`python -m tests.faults.judge STAGE ...`: judges recorded histories of stages once more; each is a folder that holds
`history-0`, `history-1` and so on.
"""

import argparse
import sys
from pathlib import Path

from tests.faults.recorded.check import check
from tests.faults.recorded.history import read_history
from tests.faults.recorded.verdict import Bounds


def main() -> int:
    """0: nothing is broken in any of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", type=Path, metavar="STAGE")
    parser.add_argument("--cluster", default="faults")
    parser.add_argument("--commit-s", type=float, default=1.0, help="between two commits of a worker")
    parser.add_argument("--session-s", type=float, default=10.0, help="until the broker gives a silent worker up")
    given = parser.parse_args()
    bounds = Bounds(commit_s=given.commit_s, session_s=given.session_s)
    broken = 0
    for stage in given.stages:
        folders = sorted(stage.glob("history-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))
        verdict = check(read_history(given.cluster, *folders), bounds)
        texts = [f"{violation.broken}: {violation.text}" for violation in verdict.violations]
        texts += [f"nothing is recorded of {kind}" for kind in verdict.unseen(rounds=True)]
        print(f"{stage}: {len(texts)} broken; looked at", ", ".join(f"{n} {kind}" for kind, n in verdict.seen.items()))
        print("".join(f"  {text}\n" for text in texts), end="")
        broken += len(texts)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
