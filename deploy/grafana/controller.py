"""The dashboard of the controllers themselves: who leads, does the input come, what do decisions cost?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import OF_CLUSTER, PanelBuilder, Query, board, lines

OF_CONTROLLERS = f"and on (job, instance) trimtab_controller_info{{{OF_CLUSTER}}}"
OF_AGENTS = f"and on (job, instance) trimtab_agent_info{{{OF_CLUSTER}}}"
SOLVER = f"trimtab_controller_solver_seconds_bucket{{{OF_CLUSTER}}}"


def controller() -> Dashboard:
    """The dashboard."""
    sections = (("Leadership", _leadership()), ("Input", _input()), ("Decisions", _decisions()), ("Cost", _cost()))
    meaning = "Who leads, does the input come, what is decided, and what does it cost?"
    return board("Trimtab: controller", "trimtab-controller", meaning, sections, per_app=False)


def _leadership() -> list[PanelBuilder]:
    return [
        lines(
            "Role",
            "1 for the present role of each controller.",
            "none",
            Query(f"trimtab_controller_role{{{OF_CLUSTER}}} == 1", "{{cluster}} {{instance}} {{role}}"),
        ),
        lines(
            "Changes of the leader",
            "The generation rises by one with each; and how many terms ended because another controller took the lead.",
            "none",
            Query(f"max by (cluster) (trimtab_controller_epoch_generation{{{OF_CLUSTER}}})", "{{cluster}} generation"),
            Query(f"sum by (cluster) (trimtab_controller_stood_down_total{{{OF_CLUSTER}}})", "{{cluster}} stood down"),
        ),
        lines(
            "On hold, and plans in flight",
            "On hold (1) the controller waits for an operator because it cannot trust its journal.",
            "none",
            Query(f"max by (cluster) (trimtab_controller_on_hold{{{OF_CLUSTER}}})", "{{cluster}} on hold"),
            Query(f"max by (cluster) (trimtab_controller_plan_in_flight{{{OF_CLUSTER}}})", "{{cluster}} plans"),
            Query(
                f"sum by (cluster, phase) (trimtab_controller_handovers_in_flight{{{OF_CLUSTER}}}) > 0",
                "{{cluster}} hand-overs {{phase}}",
            ),
        ),
    ]


def _input() -> list[PanelBuilder]:
    return [
        lines(
            "Age of the last window",
            "Seconds since its end. It rises while Spark, the broker or all agents are down.",
            "s",
            Query(f"max by (cluster) (trimtab_controller_snapshot_age_seconds{{{OF_CLUSTER}}})", "{{cluster}}"),
            limit=120,
        ),
        lines(
            "Coverage",
            "Hosts that were seen in the last window / hosts expected.",
            "percentunit",
            Query(f"min by (cluster) (trimtab_controller_coverage_ratio{{{OF_CLUSTER}}})", "{{cluster}}"),
        ),
        lines(
            "Refused messages",
            "In 15 minutes, by topic and fault.",
            "none",
            Query(
                "sum by (topic, fault) (increase(trimtab_controller_rejected_messages_total"
                f"{{{OF_CLUSTER}}}[15m])) > 0",
                "{{topic}}: {{fault}}",
            ),
        ),
        lines(
            "Restarts",
            "Of the stream (Spark), and solver processes that were killed or died, in 15 minutes.",
            "none",
            Query(
                f"sum by (cluster) (increase(trimtab_controller_stream_restarts_total{{{OF_CLUSTER}}}[15m]))",
                "{{cluster}} stream",
            ),
            Query(
                f"sum by (cluster) (increase(trimtab_controller_solver_kills_total{{{OF_CLUSTER}}}[15m]))",
                "{{cluster}} solver",
            ),
        ),
    ]


def _decisions() -> list[PanelBuilder]:
    decided = f'increase(trimtab_controller_decisions_total{{kind!="skip", {OF_CLUSTER}}}[$__rate_interval])'
    return [
        lines(
            "Decisions to do something",
            "By kind and reason.",
            "none",
            Query(f"sum by (kind, reason) ({decided}) > 0", "{{kind}}: {{reason}}"),
        ),
        lines(
            "Decisions to do nothing",
            "In 5 minutes, by reason. A reason is the name of its runbook, unless it needs nobody.",
            "none",
            Query(f"cluster_reason:trimtab_controller_skips:increase5m{{{OF_CLUSTER}}} > 0", "{{cluster}} {{reason}}"),
        ),
        lines(
            "Key groups moved",
            "By outcome of their hand-over.",
            "none",
            Query(
                f"sum by (phase) (increase(trimtab_controller_moves_total{{{OF_CLUSTER}}}[$__rate_interval]))",
                "{{phase}}",
            ),
        ),
        lines(
            "Plans that missed",
            "Rounds whose measured loads differed from the plan by more than noise, in an hour.",
            "none",
            Query(
                f"sum by (cluster) (increase(trimtab_controller_plans_missed_total{{{OF_CLUSTER}}}[1h]))", "{{cluster}}"
            ),
        ),
    ]


def _cost() -> list[PanelBuilder]:
    return [
        lines(
            "Time of the solver",
            "For a plan, in the last hour.",
            "s",
            Query(f"histogram_quantile(0.5, sum by (cluster, le) (rate({SOLVER}[1h])))", "{{cluster}} median"),
            Query(f"histogram_quantile(0.99, sum by (cluster, le) (rate({SOLVER}[1h])))", "{{cluster}} p99"),
        ),
        lines(
            "CPU",
            "Cores used by the controller's process, without Spark and the solver, and by the busiest agent.",
            "none",
            Query(f"rate(process_cpu_seconds_total[$__rate_interval]) {OF_CONTROLLERS}", "{{instance}}"),
            Query(f"topk(1, rate(process_cpu_seconds_total[$__rate_interval]) {OF_AGENTS})", "agent {{instance}}"),
        ),
        lines(
            "Memory",
            "Of the controller's process, and of the largest agent.",
            "bytes",
            Query(f"process_resident_memory_bytes {OF_CONTROLLERS}", "{{instance}}"),
            Query(f"topk(1, process_resident_memory_bytes {OF_AGENTS})", "agent {{instance}}"),
        ),
    ]
