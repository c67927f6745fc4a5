"""The Elastic Allocator: a greedy plan within a budget of operations, and how busy nodes are."""

from trimtab_models.elastic.matching import Matched, NodeLevel, ResourceDemands, level_of, match
from trimtab_models.elastic.solve import ElasticParams, ElasticResult, node_levels, solve, utilisation

__all__ = [
    "ElasticParams",
    "ElasticResult",
    "Matched",
    "NodeLevel",
    "ResourceDemands",
    "level_of",
    "match",
    "node_levels",
    "solve",
    "utilisation",
]
