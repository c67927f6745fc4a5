"""Rounds of any policy on a workload that is generated or recorded, in a cluster whose nodes come and go."""

from trimtab_models.simulation.changes import Change, ChangeKind, churn
from trimtab_models.simulation.generated import WORKLOADS, Size, Unfit, generated, generated_job, real_job_4
from trimtab_models.simulation.moment import Moment
from trimtab_models.simulation.policies import POLICIES, QUICK, THOROUGH, Policy, policy_named
from trimtab_models.simulation.recorded import recorded
from trimtab_models.simulation.run import EXACT, Perception, Round, Run, simulate
from trimtab_models.simulation.summary import Spread, Summary, summarise
from trimtab_models.simulation.uneven import uneven_cluster

__all__ = [
    "EXACT",
    "POLICIES",
    "QUICK",
    "THOROUGH",
    "WORKLOADS",
    "Change",
    "ChangeKind",
    "Moment",
    "Perception",
    "Policy",
    "Round",
    "Run",
    "Size",
    "Spread",
    "Summary",
    "Unfit",
    "churn",
    "generated",
    "generated_job",
    "policy_named",
    "real_job_4",
    "recorded",
    "simulate",
    "summarise",
    "uneven_cluster",
]
