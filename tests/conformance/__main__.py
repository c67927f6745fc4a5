"""Command line of the conformance test."""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.bench import Run
from tests.conformance.clauses import CLAUSES
from tests.conformance.kafka import Names
from tests.conformance.suite import play
from trimtab_protocol.messages.names import AppId
from trimtab_sandbox.broker import Broker
from trimtab_sandbox.processes import Processes

FAUST_JOB = f"{sys.executable} {Path(__file__).with_name('faust_job.py')} worker -l info --without-web"


def main() -> int:
    """0: every clause is kept; 1: some are not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Check an engine plug-in against docs/reference/engine-plugins.md, clause by clause.",
    )
    parser.add_argument(
        "--worker",
        default=FAUST_JOB,
        help="command line that starts one worker of the conformance job in the foreground; default: the Faust job",
    )
    parser.add_argument(
        "--bootstrap-servers",
        help="a Kafka cluster to use, in which the topics of the run stay; default: a broker of its own",
    )
    parser.add_argument("--folder", type=Path, help="where logs and state are kept; the default is removed at the end")
    parser.add_argument("--session-s", type=float, default=6.0, help="session time-out of the job's consumer group")
    parser.add_argument("--only", nargs="+", default=[], choices=[clause.name for clause in CLAUSES], metavar="CLAUSE")
    parser.add_argument("--list", action="store_true", help="say which clauses there are, and end")
    chosen = parser.parse_args()
    if chosen.list:
        for clause in CLAUSES:
            print(f"{clause.name}: {clause.text}")
        return 0
    with _folder(chosen.folder) as folder, _broker(chosen.bootstrap_servers, folder) as bootstrap:
        names = Names(cluster=f"c{uuid.uuid4().hex[:8]}", app=AppId(f"job{uuid.uuid4().hex[:8]}"))
        run = Run(command=chosen.worker, bootstrap=bootstrap, folder=folder, names=names, session_s=chosen.session_s)
        verdicts = asyncio.run(play(run, lambda line: print(line, flush=True), chosen.only))
    broken = [verdict.clause for verdict in verdicts if verdict.fault is not None]
    print(f"{len(verdicts) - len(broken)} clauses kept, {len(broken)} broken")
    return 1 if broken else 0


@contextlib.contextmanager
def _folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.absolute()
    else:
        with tempfile.TemporaryDirectory(prefix="trimtab-conformance-") as folder:
            yield Path(folder)


@contextlib.contextmanager
def _broker(chosen: str | None, folder: Path) -> Iterator[str]:
    if chosen is not None:
        yield chosen
    else:
        with Processes(folder / "broker-logs") as processes, Broker(folder / "broker", processes) as broker:
            yield broker.address


if __name__ == "__main__":
    sys.exit(main())
