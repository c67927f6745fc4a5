"""Measures what the key groups of a Faust worker cost, receive and send.

Usage: call `app.sensors.add(KeyGroupSensor(app))` before the app starts.  Then call, on the app's event loop and once
per interval, `Collector(sensor, steering, worker=...).collect(at_ms=..., interval_s=...)`.
"""

from trimtab_agent.engines.faust.measure.collect import Collector
from trimtab_agent.engines.faust.measure.meter import MeteredAgent, meter_agents
from trimtab_agent.engines.faust.measure.sensor import KeyGroupSensor

__all__ = ["Collector", "KeyGroupSensor", "MeteredAgent", "meter_agents"]
