"""The browser console and the HTTP API: what one cluster does, and what operators ask of it."""

COMMAND = ("trimtab_console.parser", "serve the browser console and the HTTP API")
"""Module and help text of the command, for the entry point in the group `trimtab.commands`."""
