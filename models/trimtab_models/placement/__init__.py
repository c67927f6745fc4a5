"""Initial placement: the slot in which every instance of a job's operators starts."""

from trimtab_models.placement.job import Job, OperatorStream, job_of, sort_slots
from trimtab_models.placement.methods import encode_placement
from trimtab_models.placement.metrics import PlacementScore, score
from trimtab_models.placement.solve import AUTO, PlacementParams, PlacementResult, Scheduler, solve

__all__ = [
    "AUTO",
    "Job",
    "OperatorStream",
    "PlacementParams",
    "PlacementResult",
    "PlacementScore",
    "Scheduler",
    "encode_placement",
    "job_of",
    "score",
    "solve",
    "sort_slots",
]
