"""Rules of operators about where key groups may be: `[[rule]]` in controller.toml.  Pure."""
