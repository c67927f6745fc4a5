"""What other systems do, as baselines: they count key groups and do not know loads."""

import numpy as np

from trimtab_models.standbys.bound import orphans_by_domain
from trimtab_models.standbys.problem import UNPLACED, Ints, StandbyProblem


def fewest_key_groups(problem: StandbyProblem) -> Ints:
    """After a loss, each orphan goes to the survivor with the fewest key groups.

    The fallback of Trimtab's plug-in where no standby is known, and what Faust's assignor does.  Only first standbys.
    """
    assignment = np.full((len(problem.owner), problem.wanted), UNPLACED, np.int64)
    owned = np.bincount(problem.owner, minlength=len(problem.capacity)).astype(np.float64)
    for domain, orphans in enumerate(orphans_by_domain(problem)):
        held = np.where((problem.domain == domain) | problem.removing, np.inf, owned)
        for key_group in np.sort(orphans).tolist():
            heir = int(held.argmin())
            assignment[key_group, 0] = heir
            held[heir] += 1
    return assignment


def rack_aware_standbys(problem: StandbyProblem) -> Ints:
    """The standbys of Kafka Streams with rack awareness (ClientTagAwareStandbyTaskAssignor, Kafka 3.2 and later).

    Task by task, each standby goes to the client with the fewest tasks (active and standby) relative to its threads, of
    those that share no tag with the active task or an earlier standby.  Here a failure domain is the tag, a worker a
    client, and its capacity the number of threads.  Ties go to the first client.
    """
    assignment = np.full((len(problem.owner), problem.wanted), UNPLACED, np.int64)
    tasks = np.bincount(problem.owner, minlength=len(problem.capacity)).astype(np.float64)
    for key_group, owner in enumerate(problem.owner.tolist()):
        names = problem.levels[problem.apart[owner]]
        used = problem.beside(key_group) | problem.removing
        for rank in range(int(problem.due[key_group])):
            standby = int(np.where(used, np.inf, tasks / problem.capacity).argmin())
            assignment[key_group, rank] = standby
            tasks[standby] += 1
            used |= names == names[standby]
    return assignment
