"""The selection of moves as an integer program, solved by OR-Tools CP-SAT.

With one worker, a fixed seed and a limit on deterministic work instead of time, the same selection gives the same plan
on any machine.  Amounts are integers of small units, rounded so that whatever fits here really fits.
"""

import numpy as np
from ortools.sat.python import cp_model

from trimtab_models.albic.joining import STEEPER, Selection
from trimtab_models.balance.problem import Bools, Floats, Ints

STEPS = 10**6  # units in the largest deviation or gain
LARGEST = 10**9  # units in a budget or limit that is not an integer


def optimise(selection: Selection, hint: Bools, seed: int, work: float) -> Bools:
    """(M,) the best choice of options found from `hint`, an allowed one; `work` = CP-SAT's deterministic seconds."""
    model = _Model(selection)
    model.hint(hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return hint
    return np.array([solver.boolean_value(variable) for variable in model.chosen], np.bool_)


class _Model:
    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.model = cp_model.CpModel()
        self.chosen = [self.model.new_bool_var("") for _ in range(len(selection.options))]
        options = selection.options
        magnitude = max(float(np.abs(amounts).max(initial=0.0)) for amounts in self._amounts())
        self._unit = max(magnitude, 1e-300) / STEPS
        self._most = 4 * STEPS * (len(options) + 2)  # upper limit of a load distance, in units
        self._by_part: dict[int, list[int]] = {}
        for option, part in enumerate(options.part.tolist()):
            self._by_part.setdefault(part, []).append(option)
        self._rest()
        self._budgets()
        self._limits()
        self._objective(self._distance())

    def _amounts(self) -> tuple[Floats, ...]:
        selection, options = self.selection, self.selection.options
        source = selection.at[options.part]
        return (
            selection.deviations,
            selection.gain,
            options.freed / selection.capacity[source],
            options.added / selection.capacity[options.node],
        )

    def _units(self, amounts: Floats) -> list[int]:
        return [round(amount / self._unit) for amount in amounts.tolist()]

    def _rest(self) -> None:
        """At most one move per part, and not of both of two rivals."""
        variables = self.chosen
        for options in self._by_part.values():
            self.model.add_at_most_one(variables[option] for option in options)
        for first, second in zip(*(each.tolist() for each in self.selection.rivals), strict=True):
            if first in self._by_part and second in self._by_part:
                both = self._by_part[first] + self._by_part[second]
                self.model.add_at_most_one(variables[option] for option in both)

    def _budgets(self) -> None:
        part = self.selection.options.part
        for row, allowance in zip(self.selection.prices, self.selection.allowances.tolist(), strict=True):
            prices, limit = _whole(row[part], allowance)
            self.model.add(cp_model.LinearExpr.weighted_sum(self.chosen, prices) <= limit)

    def _limits(self) -> None:
        """Limits of the nodes; options that leave a node make room."""
        selection, options = self.selection, self.selection.options
        source = selection.at[options.part]
        for arriving, leaving, rooms in zip(selection.arriving, selection.leaving, selection.room, strict=True):
            for node in np.unique(options.node[arriving > 0]).tolist():
                coming, going = (options.node == node) & (arriving > 0), (source == node) & (leaving > 0)
                touching = np.flatnonzero(coming | going)
                signed = np.where(options.node[touching] == node, arriving[touching], -leaving[touching])
                room = max(0.0, float(rooms[node]))
                if signed[signed > 0].sum() > room:
                    whole, limit = _whole(signed, room)
                    self.model.add(cp_model.LinearExpr.weighted_sum(_at(self.chosen, touching), whole) <= limit)

    def _distance(self) -> cp_model.IntVar:
        """The load distance after the round, in units."""
        selection, options, model = self.selection, self.selection.options, self.model
        capacity, source = selection.capacity, selection.at[options.part]
        shift = (options.freed - options.added) / capacity[selection.kept].sum()
        most = self._most
        distance = model.new_int_var(0, most, "")
        mean_falls = model.new_int_var(-most, most, "")
        model.add(cp_model.LinearExpr.weighted_sum(self.chosen, self._units(shift)) == mean_falls)
        touched = np.zeros(len(capacity), np.bool_)
        touched[source] = touched[options.node] = True
        deviations = self._units(selection.deviations)
        for node in np.flatnonzero(touched).tolist():
            leaving, coming = np.flatnonzero(source == node), np.flatnonzero(options.node == node)
            change = np.concatenate((-options.freed[leaving], options.added[coming])) / capacity[node]
            variables = _at(self.chosen, np.concatenate((leaving, coming)))
            after = cp_model.LinearExpr.weighted_sum(variables, self._units(change)) + mean_falls + deviations[node]
            model.add(after <= distance)
            if selection.kept[node]:
                model.add(after >= -distance)
        for nodes, sign in ((~touched, 1), (~touched & selection.kept, -1)):  # of the others only the worst matters
            if nodes.any():
                worst = max(sign * deviations[node] for node in np.flatnonzero(nodes).tolist())
                model.add(worst + sign * mean_falls <= distance)
        return distance

    def _objective(self, distance: cp_model.IntVar) -> None:
        """The objective to minimise, in thousandths of units."""
        weights = self.selection.weights
        above = []
        for limit in (weights.target, weights.ceiling):
            above.append(self.model.new_int_var(0, self._most, ""))
            self.model.add(above[-1] >= distance - round(min(limit / self._unit, self._most)))
        gains = [-1000 * gain for gain in self._units(self.selection.gain)]
        self.model.minimize(
            cp_model.LinearExpr.weighted_sum(self.chosen, gains)
            + round(1000 * weights.penalty) * (above[0] + STEEPER * above[1])
            + round(1000 * weights.levelling) * distance
        )

    def hint(self, chosen: Bools) -> None:
        """Start from an allowed choice."""
        for variable, value in zip(self.chosen, chosen.tolist(), strict=True):
            self.model.add_hint(variable, value)


def _at(variables: list[cp_model.IntVar], positions: Ints) -> list[cp_model.IntVar]:
    return [variables[position] for position in positions.tolist()]


def _whole(amounts: Floats, limit: float) -> tuple[list[int], int]:
    """Integers and an integer limit: what keeps it also keeps `limit`.  Exact if the amounts are integers."""
    if np.abs(amounts).sum() < 2**53 and (amounts == np.floor(amounts)).all():
        return amounts.astype(np.int64).tolist(), int(min(limit, 2**53))
    scale = LARGEST / limit if limit > 0 else 1.0
    beyond = 2 * LARGEST  # amounts above the limit are all equivalent
    return np.ceil(np.clip(amounts * scale, -beyond, beyond)).astype(np.int64).tolist(), LARGEST if limit > 0 else 0
