"""The client of one console."""

from typing import Self

from trimtab_client.access import Access
from trimtab_client.changes import Changes
from trimtab_client.link import PATIENCE_S, Link
from trimtab_client.reads import Reads


class Client(Reads, Changes):
    """A method for each resource of the API; threads may share one client."""

    def __init__(self, access: Access, *, patience_s: float = PATIENCE_S) -> None:
        """`patience_s` = how long one request is tried again, from its start.  Raises BadAccess."""
        link = Link(access, patience_s=patience_s)
        Reads.__init__(self, link)
        Changes.__init__(self, link)

    def close(self) -> None:
        """Close the connections."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
