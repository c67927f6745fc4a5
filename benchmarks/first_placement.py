"""How `[placement] first` rates the candidates for the page view count of the L/F paper.

    python benchmarks/first_placement.py

Source, view, count and sink have as many key groups each.  Source and count send to the same partition of view and
sink, view sends to all of count by key, and each of the three edges carries as many tuples.  Stock Faust starts each
partition of all four on the same worker.  The paper has four instances of each on eight nodes.
"""

from itertools import product

from trimtab_controller.decider.policies.first import candidates
from trimtab_controller.decider.window.owned import Owned
from trimtab_controller.decider.window.view import PlannableView, Worker
from trimtab_protocol.messages.names import AppId, HostId, KeyGroup, OperatorId, WorkerId

APP = AppId("pages")
SOURCE, VIEW, COUNT, SINK = (OperatorId(name) for name in ("source", "view", "count", "sink"))
CASES = ((4, 8), (8, 3), (12, 5), (64, 6))
"""(partitions, workers); the first is the paper's."""


def view_of(partitions: int, workers: int) -> PlannableView:
    """The app as stock Faust starts it."""
    names = [WorkerId(f"w{place}") for place in range(workers)]
    flows = {}
    for here, there in product(range(partitions), repeat=2):
        flows[KeyGroup(APP, VIEW, here), KeyGroup(APP, COUNT, there)] = 1.0 / partitions
        if here == there:
            flows[KeyGroup(APP, SOURCE, here), KeyGroup(APP, VIEW, here)] = 1.0
            flows[KeyGroup(APP, COUNT, here), KeyGroup(APP, SINK, here)] = 1.0
    return PlannableView(
        app=APP,
        start_s=0.0,
        end_s=10.0,
        workers=tuple(Worker(id=name, host=HostId(f"h-{name}"), capacity=1.0, draining=False) for name in names),
        key_groups=[
            Owned(key_group=KeyGroup(APP, operator, place), owner=names[place % workers], load=1.0, state_bytes=0)
            for operator in (SOURCE, VIEW, COUNT, SINK)
            for place in range(partitions)
        ],
        flows=flows,
    )


def main() -> None:
    """Print a line per case and candidate."""
    print("key groups  workers  candidate      remote  uneven  fullest  moves")
    for partitions, workers in CASES:
        for each in candidates(view_of(partitions, workers)):
            remote = f"{each.remote or 0.0:6.0%}"
            load = f"{each.uneven:7.0%} {each.fullest:7.0f}%"
            print(f"{4 * partitions:10} {workers:8}  {each.name:12}  {remote} {load} {each.moves:6}")


if __name__ == "__main__":
    main()
