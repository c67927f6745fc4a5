"""Sections that agent.toml and controller.toml share, each with one strict reader."""
