"""DynDL: tasks near their data, where remote ones slow each other down; offline, online, baselines."""

from trimtab_models.dyndl.bound import lower_bound
from trimtab_models.dyndl.costs import RemoteCosts
from trimtab_models.dyndl.encode import encode_schedule
from trimtab_models.dyndl.evaluate import Score, evaluate
from trimtab_models.dyndl.generate import Experiment, generate
from trimtab_models.dyndl.list_scheduling import solve_list
from trimtab_models.dyndl.local import LocalPlan, plan_local
from trimtab_models.dyndl.offline import solve_offline
from trimtab_models.dyndl.online import Decision, Policy, Start, Wait, Waiting, WaitingPolicy
from trimtab_models.dyndl.problem import Problem, infeasible, problem_of, task_ids
from trimtab_models.dyndl.result import ScheduleResult
from trimtab_models.dyndl.simulate import OnlineParams, simulate, solve_online

__all__ = [
    "Decision",
    "Experiment",
    "LocalPlan",
    "OnlineParams",
    "Policy",
    "Problem",
    "RemoteCosts",
    "ScheduleResult",
    "Score",
    "Start",
    "Wait",
    "Waiting",
    "WaitingPolicy",
    "encode_schedule",
    "evaluate",
    "generate",
    "infeasible",
    "lower_bound",
    "plan_local",
    "problem_of",
    "simulate",
    "solve_list",
    "solve_offline",
    "solve_online",
    "task_ids",
]
