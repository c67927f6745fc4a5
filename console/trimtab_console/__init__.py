"""The browser console and the HTTP API: what one cluster does, read from its topics."""

COMMAND = ("trimtab_console.parser", "serve the browser console and the HTTP API; it only reads")
"""Module and help text of the command, for the entry point in the group `trimtab.commands`."""
