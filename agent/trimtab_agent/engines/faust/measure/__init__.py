"""Measures what the key groups of a Faust worker cost, receive and send.

Usage: call `app.sensors.add(KeyGroupSensor(app))` before the app starts; `collect.py` takes its counts.
"""

from trimtab_agent.engines.faust.measure.meter import MeteredAgent, meter_agents
from trimtab_agent.engines.faust.measure.sensor import KeyGroupSensor

__all__ = ["KeyGroupSensor", "MeteredAgent", "meter_agents"]
