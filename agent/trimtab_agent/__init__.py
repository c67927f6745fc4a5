"""The agent: a lightweight daemon on every worker host, and plug-ins inside the stream-processing engines."""
