"""The control loop: reads windows and acks, runs decider and execution, publishes what they decide."""
