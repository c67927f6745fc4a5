"""How many files a worker may have open, compared with what the databases of its key groups need.

A worker that runs out of them cannot open its state, ends, and does so again and again; without the plug-in its agents
fail on events that then count as done.  So the limit is raised as far as it goes, and a worker that would run out of
files ends before it joins the group.
"""

import resource

FILES_PER_DATABASE = 5
"""Open files of a small RocksDB database: its log, manifest, lock, text log and first data file.  Large ones have more,
about one for each 64 MB."""
OTHER_FILES = 200
"""Files and connections of a worker that are not of databases: brokers, libraries, the agent."""
LARGEST_LIMIT = 1 << 20
"""As far as the limit is raised where the system names none."""


class TooFewFiles(Exception):
    """The databases of this worker need more open files than it may have."""


def raise_limit() -> None:
    """Raise the number of files that this process may open from the soft to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LARGEST_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_limit() -> int:
    """How many files this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LARGEST_LIMIT if soft == resource.RLIM_INFINITY else soft


def files_doubt(*, named: int, in_all: int, limit: int) -> str | None:
    """What to tell while the limit suffices for what is placed here, but not for what may come; None: nothing.

    `named` = databases of the key groups that the placement gives to this worker, standbys included; `in_all` = those
    of all key groups, which a worker may be given after losses, or as the first one that starts.  Raises TooFewFiles
    if it does not suffice for those named.
    """
    needed, at_most = (OTHER_FILES + FILES_PER_DATABASE * count for count in (named, in_all))
    if needed > limit:
        raise TooFewFiles(
            f"this worker may have {limit} files open, but the {named} databases of its key groups need {needed} or "
            "more, so it does not join the group. Raise the hard limit of open files (ulimit -Hn, LimitNOFILE= of a "
            "systemd unit, ulimits: of a container)"
        )
    if at_most > limit:
        return f"few open files: {limit} allowed, all {in_all} databases of the app may need {at_most} after losses"
    return None
