"""The order of decisions in the code is the one that operators read."""

import re
from itertools import groupby

from tests.paths import ROOT
from trimtab_controller.decider.policies.order import APP, CLUSTER, REST

ROW = re.compile(r"^\| \d+ \|.*\| `(\w+)` \|$", re.MULTILINE)


def test_the_documented_order_is_that_of_the_policies() -> None:
    page = (ROOT / "docs/concepts/how-it-decides.md").read_text(encoding="utf-8")
    documented = [name for name, _ in groupby(ROW.findall(page))]
    of_cluster, of_app, of_rest = ([each.ask.__name__ for each in policies] for policies in (CLUSTER, APP, REST))
    assert documented == [*of_cluster, *of_app, *of_rest]
