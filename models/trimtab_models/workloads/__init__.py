"""Generated workloads: jobs whose load drifts from period to period, and the rounds of a policy on them."""

from trimtab_models.workloads.jobs import Edge, Job, Period, periods, real_job_1, real_job_2, real_job_3
from trimtab_models.workloads.rounds import Budget, Policy, Round, problem_at, run_rounds

__all__ = [
    "Budget",
    "Edge",
    "Job",
    "Period",
    "Policy",
    "Round",
    "periods",
    "problem_at",
    "real_job_1",
    "real_job_2",
    "real_job_3",
    "run_rounds",
]
