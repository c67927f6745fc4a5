"""The agent: a light daemon on every worker host, and the plug-ins inside the stream engines."""
