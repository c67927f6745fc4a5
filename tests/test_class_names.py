"""A class name stands in one module of the product, so that it says which class is meant."""

import ast
from collections import defaultdict

from tests.paths import ROOT

PRODUCT = ("agent", "client", "console", "controller", "models", "sandbox", "shared")
STILL = """
    Answer Asking BadConfiguration Budget Change Cluster Configuration Connection Copies CpuMeter Drain Edge
    Exact Fault Fenced Flow Flows Handover Improver Job KeyGroup KeyGroupBlock Ledger Level Link Losses Member
    Method NotFitted Once Operator Options PairBlock Params Part Parts Placing Plan Problem Publisher Reading
    Reason Record Refusal Refused Role Round Rule Score Server Signatures State Status Stop Stream Taken Tls
    Trust Verdict _Event _Model _Plan _Search _Simulation _Slots _Solver
"""
IN_TWO_MODULES = frozenset(STILL.split())
"""Names that still stand in two modules: the list only becomes shorter."""


def test_a_class_name_stands_in_one_module() -> None:
    modules = defaultdict(set)
    for path in (path for part in PRODUCT for path in (ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(path.relative_to(ROOT))
    again = {name: sorted(map(str, paths)) for name, paths in modules.items() if len(paths) > 1}
    assert {name: again[name] for name in again.keys() - IN_TWO_MODULES} == {}
