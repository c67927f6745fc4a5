"""What a host's processes read of its files and their environment: keys, the journal as a whole, kernel files."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.fuzz.fuzzed.decoder import Decoder, Form, Refused, joined, parted
from tests.fuzz.fuzzed.files import FOLDER, KEY, file_of
from tests.fuzz.fuzzed.samples import W0
from tests.fuzz.fuzzed.wire import LINES
from trimtab_agent.commands.journal import Journal
from trimtab_agent.engines.faust.install import NotConfigured, _named, _trust
from trimtab_agent.sampler.cgroup import parse_cpu_usage, read_text
from trimtab_agent.sampler.readings import CounterReader, Quotas, find_limits, find_quotas
from trimtab_process.credential_files import load_signing_key, load_trust
from trimtab_process.trust_file import TrustFile
from trimtab_protocol.messages.report import Basis
from trimtab_protocol.signing.keys import BadKey, write_trust

TRUST = write_trust([KEY.public]).encode()


def private(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """`read` of a file that only its owner may use."""
    (FOLDER / name).touch(mode=0o600)
    return file_of(name, read)


# ---- the agent's journal, as a file

JOURNAL = FOLDER / "journal"


def _written() -> bytes:
    """A journal of all kinds of lines."""
    journal = Journal(JOURNAL)
    journal.recover()
    for line in LINES:
        journal.append(line, durable=False)
    journal.close()
    return JOURNAL.read_bytes()


def recover(data: bytes) -> None:
    """An agent starts with this journal: it never fails, and what it has written anew is whole."""
    JOURNAL.write_bytes(data)
    journal = Journal(JOURNAL)
    found = journal.recover()
    journal.rewrite(found.entries)
    journal.close()
    if found.faults:
        again = Journal(JOURNAL)
        kept = again.recover()
        again.close()
        assert (kept.faults, kept.entries) == ((), found.entries)
        raise Refused("damaged")


# ---- kernel files

ROOT = FOLDER / "root"
GROUP = ROOT / "sys/fs/cgroup/a/b"
KERNEL = {
    "proc/self/cgroup": b"12:cpu:/x\n0::/a/b\n",
    "proc/self/mountinfo": b"31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    "sys/fs/cgroup/a/b/cpu.max": b"150000 100000\n",
    "sys/fs/cgroup/a/b/memory.max": b"1073741824\n",
    "sys/fs/cgroup/a/b/memory.current": b"536870912\n",
    "sys/fs/cgroup/a/b/cpu.stat": b"usage_usec 123456789\nuser_usec 100\n",
}
for _name in KERNEL:
    (ROOT / _name).parent.mkdir(parents=True, exist_ok=True)


def sample(data: bytes) -> Quotas:
    """The quotas and counters of a machine with such files: what is not understood is no limit, or unknown."""
    for name, content in zip(KERNEL, parted(data, len(KERNEL)), strict=True):
        (ROOT / name).write_bytes(content)
    quotas = find_quotas(ROOT)
    for quota in (quotas.cpu, quotas.memory):
        assert quota is None or (quota.limit >= 0 and math.isfinite(quota.limit))
    used, limit = CounterReader(quotas, Basis.CGROUP)._memory()
    assert limit is not None
    assert 0 <= (used or 0) <= limit <= psutil.virtual_memory().total
    assert find_limits(quotas, None).cores >= 0
    text = read_text(GROUP / "cpu.stat")
    spent = parse_cpu_usage(text) if text is not None else None
    assert spent is None or (spent >= 0 and math.isfinite(spent))
    if quotas.cpu is None or quotas.memory is None or spent is None or used is None:
        raise Refused("unknown")
    return quotas


# ---- the environment

VARIABLES = ("TRIMTAB_CLUSTER", "TRIMTAB_WORKER", "TRIMTAB_TRUST")


def configure(data: bytes) -> None:
    """The variables that the plug-in reads, as far as an environment can have them: no NUL."""
    for name, value in zip(VARIABLES, parted(data, len(VARIABLES)), strict=True):
        os.environ[name] = os.fsdecode(value.replace(b"\0", b""))
    try:
        _named(VARIABLES[0]), _named(VARIABLES[1]), _trust()
    finally:
        for name in VARIABLES:
            del os.environ[name]


TRUST_FILE = FOLDER / "trust"
TRUST_FILE.write_bytes(TRUST)

DECODERS = (
    Decoder(
        name="agent: trust file", form=Form.OTHER, refusals=(BadKey,), samples=(TRUST,),
        decode=file_of("agent-trust", lambda path: TrustFile(path).keys),
    ),
    Decoder(
        name="controller: trust file", form=Form.OTHER, refusals=(BadKey,), samples=(TRUST,),
        decode=file_of("controller-trust", load_trust),
    ),
    Decoder(
        name="controller: key file", form=Form.OTHER, refusals=(BadKey,), samples=(KEY.pem(),),
        decode=private("key", load_signing_key),
    ),
    Decoder(name="agent: journal file", form=Form.OTHER, refusals=(Refused,), samples=(_written(),), decode=recover),
    Decoder(
        name="agent: kernel files", form=Form.OTHER, refusals=(Refused,), samples=(joined(*KERNEL.values()),),
        decode=sample,
    ),
    Decoder(
        name="plug-in: environment", form=Form.OTHER, refusals=(NotConfigured,), decode=configure,
        samples=(joined(b"c", W0.encode(), os.fsencode(TRUST_FILE)),),
    ),
)  # fmt: skip
