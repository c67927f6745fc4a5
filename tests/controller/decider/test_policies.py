"""The order of decisions in the code is the one that operators read."""

import re
from dataclasses import replace
from itertools import groupby

from tests.controller.decider.deciders import BALANCED, decider, execution, window
from tests.paths import ROOT
from trimtab_controller.decider.policies.order import APP, CLUSTER, REST
from trimtab_controller.decider.values.decision import StandbysPlaced

ROW = re.compile(r"^\| \d+ \|.*\| `(\w+)` \|$", re.MULTILINE)


def test_the_documented_order_is_that_of_the_policies() -> None:
    page = (ROOT / "docs/concepts/how-it-decides.md").read_text(encoding="utf-8")
    documented = [name for name, _ in groupby(ROW.findall(page))]
    of_cluster, of_app, of_rest = ([each.ask.__name__ for each in policies] for policies in (CLUSTER, APP, REST))
    assert documented == [*of_cluster, *of_app, *of_rest]


def test_asking_changes_nothing_and_what_is_carried_out_is_remembered() -> None:
    seen = window(BALANCED).snapshot
    made = decider(execution(BALANCED))
    made.record(1011.0, replace(seen, nodes=tuple(replace(row, standbys=1) for row in seen.nodes)))
    asked = [made._policies.place_standbys(now) for now in (1011.0, 1011.0, 1012.0)]
    assert isinstance(asked[0], StandbysPlaced)
    assert asked == [asked[0]] * 3
    made._policies.accepted(1012.0, asked[0])
    assert made._policies.place_standbys(1013.0) is None, "the next round begins later"
