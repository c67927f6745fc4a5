"""Plug-in that measures and steers a Faust app.  `install(app)` is the only line in the user's code."""

from trimtab_agent.engines.faust.credentials import BadKafkaFile, broker_options
from trimtab_agent.engines.faust.install import NotConfigured, Plugin, install
from trimtab_agent.engines.faust.settings import InPlace, SteeringSettings

__all__ = ["BadKafkaFile", "InPlace", "NotConfigured", "Plugin", "SteeringSettings", "broker_options", "install"]
