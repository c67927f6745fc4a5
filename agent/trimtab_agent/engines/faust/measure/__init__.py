"""What the key groups of a Faust worker cost, receive, send and hold.

`app.sensors.add(KeyGroupSensor(app))` before the app starts; then, on the app's event loop and once per interval,
`Collector(sensor).collect(steering, ...)`.
"""

from trimtab_agent.engines.faust.measure.meter import MeteredAgent, meter_agents
from trimtab_agent.engines.faust.measure.sensor import KeyGroupSensor

__all__ = ["KeyGroupSensor", "MeteredAgent", "meter_agents"]
