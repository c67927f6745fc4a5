"""Prometheus metrics of one term of the controller."""
