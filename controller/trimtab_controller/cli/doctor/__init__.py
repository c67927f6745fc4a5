"""`trimtab doctor`: `host` and `cluster` do the I/O; `host_checks`, `cluster_checks` and `agent_checks` judge."""
