"""Generated workloads: jobs whose load drifts from period to period."""

from trimtab_models.workloads.jobs import Edge, Job, Period, periods, real_job_1, real_job_2, real_job_3
from trimtab_models.workloads.problem import problem_at

__all__ = ["Edge", "Job", "Period", "periods", "problem_at", "real_job_1", "real_job_2", "real_job_3"]
