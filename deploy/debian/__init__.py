"""The Debian packages of agent and controller."""
