"""Simulates rounds of a policy on a generated or recorded workload, with nodes that join, drain or are lost."""

from trimtab_models.simulation.changes import Change, ChangeKind, churn
from trimtab_models.simulation.generated import WORKLOADS, InvalidSize, Size, generated, generated_job, real_job_4
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
    "InvalidSize",
    "Moment",
    "Perception",
    "Policy",
    "Round",
    "Run",
    "Size",
    "Spread",
    "Summary",
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
