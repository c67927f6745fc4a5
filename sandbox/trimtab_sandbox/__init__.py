"""A whole cluster on one machine, for the demo and the tests: broker, workers, agents, controller."""

COMMAND = ("trimtab_sandbox.parser", "a whole cluster on this machine")
"""What `trimtab` shows and imports; found by the entry point in the group `trimtab.commands`."""
