"""Sections that agent.toml and controller.toml have in common: one strict reader for both."""
