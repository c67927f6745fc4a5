"""The console's HTTP API for programs: `pip install 'trimtab[client]'`; see docs/guides/client.md."""

from trimtab_process.extras import explain_missing

try:
    from trimtab_client.client import Client
except ModuleNotFoundError as error:
    if (what := explain_missing(error, extra="client")) is None:
        raise
    raise ModuleNotFoundError(what, name=error.name) from error
from trimtab_client.access import Access, access_from, token_in
from trimtab_client.errors import BadAccess, BadAnswer, Changed, ConsoleError, ProblemError, Unreachable
from trimtab_protocol.console_documents import HostOrder, KeyGroupOrder, WorkerOrder

__all__ = [
    "Access",
    "BadAccess",
    "BadAnswer",
    "Changed",
    "Client",
    "ConsoleError",
    "HostOrder",
    "KeyGroupOrder",
    "ProblemError",
    "Unreachable",
    "WorkerOrder",
    "access_from",
    "token_in",
]
