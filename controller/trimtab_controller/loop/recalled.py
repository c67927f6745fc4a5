"""What a predecessor's status says that its successor should not have to learn again."""

from trimtab_controller.decider.collocation.remote_costs import Recalled
from trimtab_models.albic.fit import CostFit, TupleCost, Unknown
from trimtab_protocol.messages.status import RemoteCostStatus, Status


def recalled_costs(status: Status | None) -> Recalled:
    """What tuples between workers cost, as the status says."""
    apps = status.apps if status is not None else ()
    return {
        (app.app, row.operator): CostFit(
            sending=_cost(row.sending), receiving=_cost(row.receiving), samples=0, key_groups=0
        )
        for app in apps
        for row in (app.remote_costs.operators if app.remote_costs else ())
    }


def _cost(row: RemoteCostStatus) -> TupleCost | Unknown:
    if row.value is None or row.error is None or row.freedom is None or row.freedom <= 0.0:
        return Unknown.FEW
    return TupleCost(value=row.value, error=row.error, freedom=row.freedom)
