"""`trimtab doctor`.  `host` and `cluster` look; `host_checks`, `cluster_checks` and `agent_checks` judge: no I/O."""
