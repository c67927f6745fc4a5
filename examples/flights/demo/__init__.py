"""`make demo`, or `python -m flights.demo`: runs the flights job end to end and checks the results."""
