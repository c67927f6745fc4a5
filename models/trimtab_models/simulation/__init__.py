"""Simulates rounds of a policy on a generated or recorded workload, with nodes that join, drain or are lost."""
