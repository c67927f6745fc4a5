"""Load balancing with integrated collocation: ALBIC, and many pairs per round; COLA and PoTC as baselines."""
