"""A complete cluster on one machine, for the demo and the tests: broker, workers, agents, controller."""

COMMAND = ("trimtab_sandbox.command", "run a complete cluster on this machine")
"""Module and help text of the command, for the entry point in the group `trimtab.commands`."""
