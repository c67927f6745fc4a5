"""`make faults`: parts of a steered cluster are killed under load, and what is lost or doubled is counted."""
