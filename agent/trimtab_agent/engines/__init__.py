"""Plug-ins that run inside the processes of the stream-processing engines."""
