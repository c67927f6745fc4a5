"""Conformance test of engine plug-ins: plays agent and controller against any plug-in, clause by clause.

`python -m tests.conformance --help` runs it; `docs/reference/engine-plugins.md` is the contract.
"""
