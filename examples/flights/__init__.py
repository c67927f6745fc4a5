"""The flights job: sums delays per airplane and year over the 336,776 flights that left New York City in 2013.

This is Real Job 2 of Madsen, Zhou and Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing
Engine". One operator extracts delays, another sums them by airplane and year; both are keyed by the airplane. `python
-m flights.app worker` starts a worker, `python -m flights.producer` replays the flights, and `flights.verify` checks
the results.  Run with this folder's parent on PYTHONPATH.
"""
