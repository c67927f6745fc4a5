"""DynDL: schedules tasks near their data, where remote tasks slow each other down; offline, online, baselines.

The paper leaves some points open.  Our decisions are cited as "settlement N" (tests: `test_settlement_N_...`):
1 the remote tasks of a server count for each other, also one after another; 2 what fits up to rounding, fits, and ties
go by task id; 3 phase I follows whole paths, not only single moves; 4 a failed search closes all servers that it
visited; 5 the fill considers how further remote tasks slow down the others; 6 waits count from when the core became
idle, and events at equal times have a fixed order; 7 tasks without a usable replica are remote; 8 online runs report
the model's makespan and the event time; 9 the generator of the paper's experiments.

Plans for balance name the target of each restore, so that order and number at a time are left to decide: `given`.
After a loss `targets` also chooses where to restore.  Only tests call `sizes` so far.  `benchmarks/dyndl` has the
generator of the paper's experiments, the other baselines, and the exact optimum of small instances.
"""

from trimtab_models.dyndl.bound import lower_bound
from trimtab_models.dyndl.fitting import FittedCost, LocalRestore, RestoreSample, fit_cost, network_prior
from trimtab_models.dyndl.given import GivenProblem, GivenSchedule, solve_given, with_costs
from trimtab_models.dyndl.list_scheduling import solve_list
from trimtab_models.dyndl.local import LocalPlan, plan_local
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import Decision, OnlinePolicy, Start, Wait, WaitingPolicy, WaitingRule
from trimtab_models.dyndl.problem import RemoteTaskCosts, ScheduleProblem, infeasible, problem_of, task_ids
from trimtab_models.dyndl.result import ScheduleResult, ScheduleScore, encode_schedule, evaluate
from trimtab_models.dyndl.simulate import OnlineParams, simulate, solve_online
from trimtab_models.dyndl.sizes import SizedParams, SizedProblem, SizedResult, evaluate_sized, solve_sized
from trimtab_models.dyndl.targets import (
    OnlineRestore,
    Targets,
    TargetsProblem,
    choose_online,
    choose_targets,
    makespan_of,
    pace_of,
    targets_bound,
)

__all__ = [
    "Decision",
    "FittedCost",
    "GivenProblem",
    "GivenSchedule",
    "LocalPlan",
    "LocalRestore",
    "OnlineParams",
    "OnlinePolicy",
    "OnlineRestore",
    "RemoteTaskCosts",
    "RestoreSample",
    "ScheduleProblem",
    "ScheduleResult",
    "ScheduleScore",
    "SizedParams",
    "SizedProblem",
    "SizedResult",
    "Start",
    "Targets",
    "TargetsProblem",
    "Wait",
    "WaitingPolicy",
    "WaitingRule",
    "choose_online",
    "choose_targets",
    "encode_schedule",
    "evaluate",
    "evaluate_sized",
    "fit_cost",
    "infeasible",
    "lower_bound",
    "makespan_of",
    "network_prior",
    "pace_of",
    "plan_local",
    "problem_of",
    "simulate",
    "solve_given",
    "solve_list",
    "solve_offline",
    "solve_online",
    "solve_sized",
    "targets_bound",
    "task_ids",
    "with_costs",
]
