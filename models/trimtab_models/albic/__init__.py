"""Load balancing with integrated collocation: ALBIC, and many pairs per round; COLA as a baseline."""
