"""The dashboards for Grafana, written by `make dashboards`."""
