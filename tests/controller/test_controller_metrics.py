"""What the controller's metrics show of apps that come and go."""

from trimtab_controller.decider.evaluate import Evaluation
from trimtab_controller.metrics import Metrics
from trimtab_models.messages.names import AppId


def evaluation(load_distance: float | None, collocation: float | None) -> Evaluation:
    return Evaluation(
        node_loads={}, mean_load=None, load_distance=load_distance, noise=None, collocation=collocation
    )  # fmt: skip


def test_an_app_that_is_gone_or_unknown_shows_no_figure_of_before() -> None:
    metrics = Metrics()
    metrics.see_evaluations({AppId(f"a{number}"): evaluation(5.0, 0.5) for number in range(100)})
    metrics.see_evaluations({AppId("a0"): evaluation(4.0, None), AppId("a1"): evaluation(None, 0.25)})

    samples = [sample for metric in metrics.registry.collect() for sample in metric.samples]
    found = {(sample.name, sample.labels["app"]): sample.value for sample in samples if "app" in sample.labels}
    assert found == {
        ("trimtab_controller_load_distance_pp", "a0"): 4.0,
        ("trimtab_controller_collocation_ratio", "a1"): 0.25,
    }
