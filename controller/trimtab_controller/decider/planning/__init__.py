"""Plans: whether one is worth looking for, the question to the solver, what its answer is worth, and why it moves."""
