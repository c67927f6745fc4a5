"""The Elastic Allocator: a greedy plan within a budget of operations, and how busy nodes are.

`trimtab solve` and `trimtab simulate` call `solve`.  The running controller calls `match`, for key groups that have
lost their owner, and `level_of`.
"""

from trimtab_models.elastic.matching import Demands, Level, Matched, level_of, match
from trimtab_models.elastic.solve import ElasticResult, Params, node_levels, solve, utilisation

__all__ = [
    "Demands",
    "ElasticResult",
    "Level",
    "Matched",
    "Params",
    "level_of",
    "match",
    "node_levels",
    "solve",
    "utilisation",
]
