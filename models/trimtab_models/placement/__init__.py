"""Initial placement: the slot in which every instance of a job's operators starts.

`trimtab solve` calls it, and the running controller for an app that has never run (`[placement] first`).
"""

from trimtab_models.placement.job import Job, Stream, job_of, sort_slots
from trimtab_models.placement.methods import encode_placement
from trimtab_models.placement.metrics import Score, score
from trimtab_models.placement.solve import AUTO, Params, PlacementResult, Scheduler, solve

__all__ = [
    "AUTO",
    "Job",
    "Params",
    "PlacementResult",
    "Scheduler",
    "Score",
    "Stream",
    "encode_placement",
    "job_of",
    "score",
    "solve",
    "sort_slots",
]
