"""Limits of hosts: what the key groups on all nodes of a host may use together.

The solver knows limits of single nodes.  Here it is asked in two steps, so that problems whose hosts have room keep
their plan and their time:

1. Every node may use all that its host may.  This relaxes the problem, so the bound of its solution holds.  If the
   plan keeps the limits of the hosts too, it is the answer.
2. Otherwise the room of each full host is divided among its nodes, in two ways: by capacity; and what a node uses now,
   with the rest up to one level per capacity, so that every plan keeps the limits of the hosts.  These plans and that
   of step 1 are compared, without the arrivals that would fill a host too much.

A limit that is exceeded now is raised to the present use: it never makes a problem infeasible, and no plan makes it
worse.

Of some resources (state on a disk) a key group that moves goes on using what it used at home.  For the solver such a
resource is what arrivals may use: at home a key group uses nothing of it, and elsewhere as much as is not there yet.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trimtab_models.balance.evaluate import evaluate
from trimtab_models.balance.problem import UNPLACED, BalanceProblem, Bools, Floats, Ints
from trimtab_models.balance.result import BalanceResult
from trimtab_models.instances.snapshot import KEPT, LOAD, BalanceInstance, of_node
from trimtab_models.solving import Infeasible, StopRule, part_of
from trimtab_models.spared import Spared, usage_on

RELAXED_SHARE = 0.7  # of the time for step 1, which is nearly always enough
EVEN_SHARE = 0.5  # of the rest, for shares by capacity
URGENT_PP = 5.0  # `Params.urgent`: up to this, a drain may raise the load distance
ROUNDING = 1e-9  # of all use together

Solver = Callable[[BalanceProblem, StopRule], BalanceResult | Infeasible]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostLimits:
    """H hosts of N nodes with R resources, of which the first is the load.  Nobody writes to the arrays.

    `stays` = rows of the resources of which a key group that leaves its node in `home` still uses as much there.
    `spared` = what key groups use less on nodes other than their home.
    """

    host: Ints  # (N,)
    usage: Floats  # (R, K)
    room: Floats  # (R, H), infinite = no limit
    home: Ints | None = None  # (K,)
    stays: tuple[int, ...] = ()
    spared: Spared | None = None

    def __post_init__(self) -> None:
        hosts = self.room.shape[1]
        if len(self.host) and not (self.host.min() >= 0 and self.host.max() < hosts):
            raise ValueError("host must name a host of every node")
        if len(self.usage) != len(self.room) or np.isnan(self.room).any():
            raise ValueError("usage and room must have one row per resource, without NaN")
        if self.stays and (self.home is None or self.home.shape != self.usage.shape[1:]):
            raise ValueError("resources that stay need the home of every key group")
        if self.spared is not None and self.spared.amount.shape[0] != len(self.usage):
            raise ValueError("what is spared must have one row per resource")

    def used(self, allocation: Ints) -> Floats:
        """(R, H) what the key groups on each host use; unplaced ones count nowhere."""
        placed = np.flatnonzero(allocation != UNPLACED)
        node = allocation[placed]
        amounts = usage_on(self.usage, self.spared, placed, node)
        rows = [np.bincount(self.host[node], row, self.room.shape[1]) for row in amounts]
        used = np.array(rows, np.float64).reshape(self.room.shape)
        if self.stays and self.home is not None:
            left = (self.home != UNPLACED) & (allocation != self.home)
            for row in self.stays:
                used[row] += np.bincount(self.host[self.home[left]], self.usage[row, left], self.room.shape[1])
        return used

    @property
    def _free(self) -> Floats:
        """(R, H) the room without what stays at home."""
        free = self.room.copy()
        if self.stays and self.home is not None:
            placed = np.flatnonzero(self.home != UNPLACED)
            host = self.host[self.home[placed]]
            for row in self.stays:
                free[row] -= np.bincount(host, self.usage[row, placed], self.room.shape[1])
        return free

    def tolerating(self, allocation: Ints) -> "HostLimits":
        """The limits, with every one that `allocation` exceeds raised to its use."""
        return replace(self, room=np.maximum(self.room, self.used(allocation)))

    def keep(self, allocation: Ints) -> bool:
        """Whether `allocation` keeps all limits."""
        return not self.overfull(allocation).any()

    def overfull(self, allocation: Ints) -> Bools:
        """(R, H) the limits that `allocation` exceeds."""
        over: Bools = self.used(allocation) > self.room + self._slack
        return over

    @property
    def _slack(self) -> Floats:
        total: Floats = self.usage.sum(axis=1, keepdims=True)
        return ROUNDING * total

    def binding(self, problem: BalanceProblem) -> "HostLimits | None":
        """Only the limits that a plan of the solvers could exceed; None if there are none."""
        reachable = self._reachable(problem)
        highest = problem.mean + max(
            evaluate(problem, problem.home).load_distance, problem.max_load_distance, URGENT_PP
        )
        capacity = np.bincount(self.host, problem.capacity, self.room.shape[1])
        reachable[0] = np.minimum(reachable[0], highest * capacity)  # no solver lifts a node higher
        room = np.where(reachable > self.room + self._slack, self.room, np.inf)
        return replace(self, room=room) if np.isfinite(room).any() else None

    def _reachable(self, problem: BalanceProblem) -> Floats:
        """(R, H) the most that each host can use after as many moves as the budget allows."""
        used, moves = self.used(problem.home), len(problem.load)
        if problem.max_migrations is not None:
            moves = min(moves, problem.max_migrations + int((problem.home == UNPLACED).sum()))
        largest = self.usage
        if moves < len(problem.load):
            largest = np.sort(self.usage, axis=1)[:, len(problem.load) - moves :]
        reachable: Floats = used + largest.sum(axis=1, keepdims=True)
        return reachable

    def lower_bound(self, problem: BalanceProblem) -> float:
        """A bound (pp) on the load distance of all plans: the limits of the load alone, with divisible key groups."""
        hosts = self.room.shape[1]
        capacity: Floats = np.bincount(self.host, problem.capacity, hosts).astype(np.float64)
        kept = np.bincount(self.host, np.where(problem.kept, problem.capacity, 0.0), hosts)
        room = self.room[0]
        there = (kept > 0) & np.isfinite(room)
        under = problem.mean - room[there] / kept[there]  # even at its limit, a host stays this far below the mean
        return max(0.0, float(under.max(initial=0.0)), _level(room, capacity, float(problem.load.sum())) - problem.mean)

    def of_nodes(self) -> Floats:
        """(R, N) what each node may use if all others of its host were empty."""
        return self._free[:, self.host]

    def shares(self, problem: BalanceProblem) -> Floats:
        """(R, N) limits of the nodes which add up to those of the hosts, all of them at least the present use."""
        shares, free, placed = np.full((len(self.room), len(self.host)), np.inf), self._free, problem.home != UNPLACED
        for resource, usage in enumerate(self.usage):
            counted = np.zeros_like(usage[placed]) if resource in self.stays else usage[placed]
            now: Floats = np.bincount(problem.home[placed], counted, len(self.host)).astype(np.float64)
            for host in np.flatnonzero(np.isfinite(free[resource])).tolist():
                nodes = np.flatnonzero(self.host == host)
                weight = np.where(problem.removing[nodes], 0.0, problem.capacity[nodes])
                shares[resource, nodes] = _filled(now[nodes], weight, float(free[resource, host]))
        return shares

    def even_shares(self, problem: BalanceProblem) -> Floats:
        """(R, N) limits of the nodes by capacity; where a node uses more now, they add up to more than the host's."""
        weight = np.where(problem.removing, 0.0, problem.capacity)
        together = np.bincount(self.host, weight, self.room.shape[1])
        room, part = self.of_nodes(), weight / np.maximum(together[self.host], 1e-300)
        return np.where(np.isfinite(room), np.where(np.isfinite(room), room, 0.0) * part, np.inf)

    def divided(self, problem: BalanceProblem) -> BalanceProblem:
        """`problem` with the room of the hosts divided among their nodes, for solvers that know no hosts."""
        binding = self.binding(problem)
        if binding is None:
            return problem
        binding = binding.tolerating(problem.home)
        return binding.limited(problem, binding.shares(problem))

    def limited(self, problem: BalanceProblem, limit: Floats) -> BalanceProblem:
        """`problem` with these limits (R, N) of nodes besides."""
        rows = np.flatnonzero(np.isfinite(limit).any(axis=1))
        return problem.with_limits(self.usage[rows], limit[rows], self._spared(rows))

    def _spared(self, rows: Ints) -> Spared | None:
        """What the solver does not count of these resources: copies, and what stays at home anyway."""
        size = self.usage.shape[1], len(self.host)
        found = [] if self.spared is None else [(self.spared.key_group, self.spared.node, self.spared.amount[rows])]
        stays = np.isin(rows, self.stays)
        if stays.any() and self.home is not None:
            placed = np.flatnonzero(self.home != UNPLACED)
            found.append((placed, self.home[placed], np.where(stays[:, None], self.usage[rows][:, placed], 0.0)))
        if not found:
            return None
        key_group, node, amount = (np.concatenate(each, axis=-1) for each in zip(*found, strict=True))
        return Spared.of(key_group, node, amount, size)

    def at_home(self, problem: BalanceProblem, allocation: Ints) -> Ints:
        """(K,) `allocation` without the fewest arrivals, heaviest first, on hosts that it fills too much."""
        found, used, most = allocation.copy(), self.used(allocation), self.room + self._slack
        for _ in range(len(problem.load)):
            over = np.argwhere(used > most)
            if not len(over):
                break
            resource, host = over[0].tolist()
            arrived = (problem.home != UNPLACED) & (found != problem.home) & (self.host[found] == host)
            if resource not in self.stays:
                arrived &= self.host[problem.home] != host
            candidates = np.flatnonzero(arrived & (self.usage[resource] > 0))
            amounts = usage_on(self.usage, self.spared, candidates, found[candidates])[resource]
            if not amounts.any():
                break  # only unplaced key groups fill it
            order = np.argsort(-amounts, kind="stable")
            for back in candidates[order[amounts[order] > 0]].tolist():
                self._send_home(problem, found, used, back)
                if used[resource, host] <= most[resource, host]:
                    break
        return found

    def _send_home(self, problem: BalanceProblem, allocation: Ints, used: Floats, key_group: int) -> None:
        """Send a key group home, in `allocation`, and change what is used (R, H) accordingly."""
        node, home = int(allocation[key_group]), int(problem.home[key_group])
        allocation[key_group] = home
        used[:, self.host[node]] -= usage_on(self.usage, self.spared, key_group, node)
        more = self.usage[:, key_group].copy()
        more[list(self.stays)] = 0.0  # it is in use there already
        used[:, self.host[home]] += more


def _level(room: Floats, capacity: Floats, total: float) -> float:
    """The least level (percent) at which all load fits: sum of min(room, level x capacity) = total."""
    brim = room / np.maximum(capacity, 1e-300)
    order = np.argsort(brim)
    full, open_capacity = 0.0, float(capacity.sum())
    for host in order.tolist():
        level = (total - full) / max(open_capacity, 1e-300)
        if level <= brim[host]:
            return level
        full += float(room[host])
        open_capacity -= float(capacity[host])
    return 0.0  # more than all rooms together: present use has raised them, so this is rounding


def _filled(now: Floats, weight: Floats, room: float) -> Floats:
    """Shares of `room`: at least `now`, and beyond that one level per weight."""
    share, free = now.copy(), np.flatnonzero(weight > 0)
    for _ in range(len(now)):
        rest = room - float(share[np.setdiff1d(np.arange(len(now)), free)].sum())
        if not len(free) or rest <= 0:
            break
        level = rest / float(weight[free].sum())
        above = free[now[free] > level * weight[free]]
        if not len(above):
            share[free] = level * weight[free]
            break
        free = np.setdiff1d(free, above)
    return share


def solve_on_hosts(
    problem: BalanceProblem, limits: HostLimits, solver: Solver, *, stop: StopRule
) -> BalanceResult | Infeasible:
    """The plan of `solver` for `problem`, within the limits of the hosts."""
    binding = limits.binding(problem)
    if binding is None:
        return solver(problem, stop)
    binding = binding.tolerating(problem.home)
    part = part_of(stop, RELAXED_SHARE)
    relaxed = solver(binding.limited(problem, binding.of_nodes()), part)
    if isinstance(relaxed, Infeasible):
        return relaxed
    bound = max(relaxed.lower_bound, binding.lower_bound(problem))
    if binding.keep(relaxed.allocation):
        return _judged(problem, relaxed, relaxed.allocation, bound)
    plans = [(relaxed, binding.at_home(problem, relaxed.allocation))]
    part = part_of(stop, EVEN_SHARE)
    for shares, until in ((binding.even_shares(problem), part), (binding.shares(problem), stop)):
        shared = solver(binding.limited(problem, shares), until)
        if isinstance(shared, BalanceResult):
            plans.append((shared, binding.at_home(problem, shared.allocation)))
    kept = [plan for plan in plans if binding.keep(plan[1])] or plans[:1]  # unplaced key groups may have to overfill
    return _judged(problem, *min(kept, key=lambda plan: _merit(problem, plan[1])), bound)


def within(problem: BalanceProblem, limits: HostLimits, result: BalanceResult) -> BalanceResult:
    """`result` within the limits of the hosts, of a solver that knows shares of nodes only: see `HostLimits.divided`.

    Arrivals that fill a host too much are taken back; where the rest would leave the balance worse than both before and
    allowed, nothing moves.
    """
    limits = limits.tolerating(problem.home)
    if limits.keep(result.allocation):
        return result
    found = limits.at_home(problem, result.allocation)
    allowed = max(evaluate(problem, problem.home).load_distance, problem.max_load_distance)
    if evaluate(problem, found).load_distance > allowed or not limits.keep(found):
        found = problem.home
    return _judged(problem, result, found, result.lower_bound)


def _merit(problem: BalanceProblem, allocation: Ints) -> tuple[int, float, int]:
    """Sort key: key groups left on draining nodes, load distance, moves."""
    score = evaluate(problem, allocation)
    return int(problem.to_leave(allocation).sum()), score.load_distance, score.migrations


def _judged(problem: BalanceProblem, result: BalanceResult, allocation: Ints, bound: float) -> BalanceResult:
    """`result` with this allocation and bound."""
    return BalanceResult.of(problem, allocation, evaluate(problem, allocation), bound, alerts=result.alerts)


def limits_in(instance: BalanceInstance) -> HostLimits | None:
    """The limits of hosts, with the load as first resource; None if there are none."""
    named = instance.named_hosts()
    if not named.names:
        return None
    resources = [LOAD, *sorted(named.room.keys() - {LOAD})]
    hosts = sorted(set(named.host.values()))
    places = {name: place for place, name in enumerate(hosts)}
    alone = len(hosts)  # one host without limits for all other nodes
    room = [[named.room.get(resource, {}).get(host, np.inf) for host in hosts] + [np.inf] for resource in resources]
    usage = [
        [each.load if resource == LOAD else each.usage.get(resource, 0.0) for each in instance.key_groups]
        for resource in resources
    ]
    node_at = {node.id: place for place, node in enumerate(instance.nodes)}
    home = [UNPLACED if each.node is None else node_at[each.node] for each in instance.key_groups]
    table = np.array(usage, np.float64).reshape(len(resources), len(home))
    return HostLimits(
        host=np.array([places.get(named.host.get(place, ""), alone) for place in range(len(instance.nodes))], np.int64),
        usage=table,
        room=np.array(room, np.float64),
        home=np.array(home, np.int64),
        stays=tuple(row for row, resource in enumerate(resources) if resource.startswith(KEPT)),
        spared=_spared(instance, resources, table, node_at),
    )


def _spared(
    instance: BalanceInstance,
    resources: list[str],
    usage: Floats,
    node_at: dict[str, int],
) -> Spared | None:
    """What key groups use less on single nodes."""
    names = {of_node(node, each): (place, row) for node, place in node_at.items() for row, each in enumerate(resources)}
    pairs: list[tuple[int, int]] = []
    amounts: list[tuple[int, float]] = []
    for at, key_group in enumerate(instance.key_groups):
        for name, used in key_group.usage.items():
            if name in names:
                node, row = names[name]
                pairs.append((at, node))
                amounts.append((row, max(0.0, usage[row, at] - used)))
    amount = np.zeros((len(resources), len(pairs)))
    for column, (row, less) in enumerate(amounts):
        amount[row, column] = less
    places = np.array(pairs, np.int64).reshape(len(pairs), 2)
    return Spared.of(places[:, 0], places[:, 1], amount, (len(instance.key_groups), len(node_at)))
