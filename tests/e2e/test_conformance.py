"""The Faust plug-in keeps every clause of the contract for engine plug-ins."""

import asyncio
import tempfile
from pathlib import Path

from tests.conformance.__main__ import FAUST_JOB
from tests.conformance.bench import Run
from tests.conformance.clauses import CLAUSES
from tests.conformance.kafka import Names
from tests.conformance.suite import play
from trimtab_protocol.messages.names import AppId
from trimtab_sandbox.broker import Broker


def test_the_faust_plugin_keeps_every_clause(broker: Broker, unique: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path: it holds a Unix socket
        names = Names(cluster=unique, app=AppId(f"{unique}-job"))
        run = Run(command=FAUST_JOB, bootstrap=broker.address, folder=Path(folder), names=names)
        verdicts = asyncio.run(play(run, print))

    assert {verdict.clause: verdict.fault for verdict in verdicts} == {clause.name: None for clause in CLAUSES}
