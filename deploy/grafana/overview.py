"""The dashboard for whoever is on call: is the job balanced, does it keep up, what if a host is lost?"""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from deploy.grafana.panels import OF_APP, OF_CLUSTER, PanelBuilder, Query, board, figure, lines, rows

ALERTS = f'ALERTS{{alertname=~"Trimtab.*", alertstate="firing", {OF_CLUSTER}}}'
MANY = 20
"""How many lines a panel of all workers or hosts has."""


def overview() -> Dashboard:
    """The dashboard."""
    sections = (
        ("Now", [*_now()]),
        ("Alerts", [rows("Alerts", "The annotation `runbook` of each says what to do.", Query(ALERTS))]),
        ("Balance", _balance()),
        ("Demand", _demand()),
        ("Next failure, next growth", _reserves()),
        ("Hand-overs", _handovers()),
        ("Agents", _agents()),
    )
    meaning = "Is the job balanced, does it keep up, and what if a host is lost?"
    return board("Trimtab: overview", "trimtab-overview", meaning, sections, per_app=True)


def _now() -> list[PanelBuilder]:
    per_app = OF_APP
    return [
        figure(
            "Controllers that lead",
            "One for each cluster.",
            "none",
            Query(f"sum by (cluster) (cluster:trimtab_controllers_leading:sum{{{OF_CLUSTER}}})", "{{cluster}}"),
            limit=1,
            worse="below",
        ),
        figure(
            "Highest demand",
            "CPU asked of the worker that is asked for most, as a share of its capacity. Above 100 % it falls behind.",
            "percentunit",
            Query(f"max by (app) (cluster_app:trimtab_controller_worker_demand_ratio:max{{{per_app}}})", "{{app}}"),
            limit=1,
        ),
        figure(
            "Headroom",
            "Times the present input that fits as placed. Below 1, more is asked than there is.",
            "none",
            Query(f"min by (app) (trimtab_controller_headroom_ratio{{{per_app}}})", "{{app}}"),
            limit=1,
            worse="below",
        ),
        figure(
            "N-1",
            "Highest load of a worker after the loss of any one host, as a share of its capacity.",
            "percentunit",
            Query(f"max by (app) (trimtab_controller_n_minus_1_ratio{{{per_app}}})", "{{app}}"),
            limit=1,
        ),
        figure(
            "Unknown load",
            "Share of the load that the last window did not measure. Above 5 % nothing is planned for the app.",
            "percentunit",
            Query(f"max by (app) (trimtab_controller_unknown_load_ratio{{{per_app}}})", "{{app}}"),
            limit=0.025,
        ),
        figure(
            "Alerts firing",
            "Trimtab's own alerts.",
            "none",
            Query(f"count({ALERTS}) or vector(0)", "alerts"),
            limit=1,
        ),
    ]


def _balance() -> list[PanelBuilder]:
    return [
        lines(
            "Load distance",
            "Largest difference between the load of a worker and the mean, in percentage points. No plan within its "
            "budget gets below the bound of the last plan.",
            "none",
            Query(f"max by (app) (trimtab_controller_load_distance_pp{{{OF_APP}}})", "{{app}}"),
            Query(f"max by (app) (trimtab_controller_lower_bound_pp{{{OF_APP}}})", "{{app}}: bound"),
        ),
        lines(
            "Planned and measured",
            "Load distance that the last plan predicted, and what was measured after it, in percentage points.",
            "none",
            Query(f"max by (app) (trimtab_controller_planned_load_distance_pp{{{OF_APP}}})", "{{app}}: planned"),
            Query(f"max by (app) (trimtab_controller_measured_load_distance_pp{{{OF_APP}}})", "{{app}}: measured"),
        ),
    ]


def _demand() -> list[PanelBuilder]:
    return [
        lines(
            "Demand of workers",
            f"CPU asked of the {MANY} workers that are asked for most / their capacity. Above 100 % they fall behind.",
            "percentunit",
            Query(f"topk({MANY}, trimtab_controller_worker_demand_ratio{{{OF_APP}}})", "{{worker}}"),
            Query(f"cluster_app:trimtab_controller_worker_demand_ratio:avg{{{OF_APP}}}", "{{app}}: mean"),
            limit=1,
        ),
        lines(
            "Demand of hosts",
            f"CPU asked of the {MANY} hosts that are asked for most, with what other processes use / their cores.",
            "percentunit",
            Query(f"topk({MANY}, trimtab_controller_host_demand_ratio{{{OF_CLUSTER}}})", "{{host}}"),
            limit=1,
        ),
        lines(
            "Backlog",
            "Inputs in Kafka that are not processed yet.",
            "short",
            Query(f"max by (app) (trimtab_controller_backlog_tuples{{{OF_APP}}})", "{{app}}"),
        ),
        lines(
            "Size",
            "CPU asked of the app, its capacity, and how many workers it should have.",
            "none",
            Query(f"max by (app) (trimtab_controller_demand_cores{{{OF_APP}}})", "{{app}}: cores asked"),
            Query(f"max by (app) (trimtab_controller_capacity_cores{{{OF_APP}}})", "{{app}}: cores there"),
            Query(f"max by (app) (trimtab_controller_desired_workers{{{OF_APP}}})", "{{app}}: workers wanted"),
        ),
    ]


def _reserves() -> list[PanelBuilder]:
    return [
        lines(
            "N-1",
            "Highest load of a worker after the loss of any one host / its capacity. No choice of standbys gets below "
            "the bound.",
            "percentunit",
            Query(f"max by (app) (trimtab_controller_n_minus_1_ratio{{{OF_APP}}})", "{{app}}"),
            Query(f"max by (app) (trimtab_controller_n_minus_1_bound_ratio{{{OF_APP}}})", "{{app}}: bound"),
            limit=1,
        ),
        lines(
            "Key groups without standby",
            "After a crash these are restored by reading their whole changelogs.",
            "none",
            Query(f"max by (app) (trimtab_controller_key_groups_without_standby{{{OF_APP}}})", "{{app}}"),
        ),
        lines(
            "Headroom",
            "Times the present input that fits: as placed, with free moves, and at most.",
            "none",
            Query(f"max by (app) (trimtab_controller_headroom_ratio{{{OF_APP}}})", "{{app}}: as placed"),
            Query(f"max by (app) (trimtab_controller_headroom_potential_ratio{{{OF_APP}}})", "{{app}}: free moves"),
            Query(f"max by (app) (trimtab_controller_headroom_bound_ratio{{{OF_APP}}})", "{{app}}: bound"),
        ),
    ]


def _handovers() -> list[PanelBuilder]:
    return [
        lines(
            "Hand-overs that ended",
            "In 15 minutes, by outcome. After a failed one the key groups are where they were.",
            "none",
            Query(f"cluster_phase:trimtab_controller_handovers:increase15m{{{OF_CLUSTER}}}", "{{cluster}} {{phase}}"),
        ),
        lines(
            "Pauses",
            "How long key groups paused that were handed over in the last 15 minutes. The log line of the plan's end "
            "names the hand-over with the longest pause.",
            "s",
            Query(f"cluster:trimtab_controller_handover_pause_seconds:p50_15m{{{OF_CLUSTER}}}", "{{cluster}} median"),
            Query(f"cluster:trimtab_controller_handover_pause_seconds:p99_15m{{{OF_CLUSTER}}}", "{{cluster}} p99"),
        ),
        lines(
            "Paused in the last hour, by cause",
            "Key-group seconds: what the disruption budget counts. Rebalances are as plug-ins measured them; losses "
            "are key groups without an owner.",
            "none",
            Query(
                f"max by (app, cause) (trimtab_controller_paused_key_group_cause_seconds{{{OF_APP}}})",
                "{{app}} {{cause}}",
            ),
            Query(f"max by (app) (trimtab_controller_paused_key_group_limit_seconds{{{OF_APP}}})", "{{app}}: limit"),
        ),
        lines(
            "Time until all state is warm",
            "Of the last plan: planned, measured, and the bound of any schedule.",
            "s",
            Query(f"max by (app) (trimtab_controller_recovery_planned_seconds{{{OF_APP}}})", "{{app}}: planned"),
            Query(f"max by (app) (trimtab_controller_recovery_seconds{{{OF_APP}}})", "{{app}}: measured"),
            Query(f"max by (app) (trimtab_controller_recovery_bound_seconds{{{OF_APP}}})", "{{app}}: bound"),
        ),
    ]


def _agents() -> list[PanelBuilder]:
    return [
        lines(
            "Agents",
            "How many Prometheus sees, by version, and how many of them do not reach Kafka.",
            "none",
            Query(f"count by (cluster, version) (trimtab_agent_info{{{OF_CLUSTER}}})", "{{cluster}} {{version}}"),
            Query(
                f"count by (cluster) (trimtab_agent_broker_connected{{{OF_CLUSTER}}} == 0)", "{{cluster}} without Kafka"
            ),
        ),
        lines(
            "Workers",
            "Connected to agents, those that take commands, and those that crashed too often.",
            "none",
            Query(f"sum by (cluster) (trimtab_agent_workers_connected{{{OF_CLUSTER}}})", "{{cluster}} connected"),
            Query(f"sum by (cluster) (trimtab_agent_workers_steering{{{OF_CLUSTER}}})", "{{cluster}} steering"),
            Query(f"sum by (cluster) (trimtab_agent_workers_given_up{{{OF_CLUSTER}}})", "{{cluster}} given up"),
        ),
        lines(
            "Refused records",
            "Commands that agents dropped as invalid, and placements and hand-over records that workers refused, in 15 "
            "minutes.",
            "none",
            Query(
                f"sum by (cluster, reason) (increase(trimtab_agent_bad_commands_total{{{OF_CLUSTER}}}[15m])) > 0",
                "{{cluster}} commands: {{reason}}",
            ),
            Query(
                "sum by (cluster, reason) (increase(trimtab_agent_worker_refused_records_total"
                f"{{{OF_CLUSTER}}}[15m])) > 0",
                "{{cluster}} records: {{reason}}",
            ),
        ),
    ]
