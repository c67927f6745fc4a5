"""A whole cluster on one machine, for the demo and the tests: broker, workers, agents, controller."""
