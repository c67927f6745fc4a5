"""The flights job: sums of delays per airplane and year over all 336,776 flights that left New York City in 2013.

Real Job 2 of Madsen, Zhou and Cao, "Integrative Dynamic Reconfiguration in a Parallel Stream Processing Engine": an
operator that extracts delays, one that sums them by airplane and year, both keyed by the airplane.
`python -m flights.app worker` is a worker, `python -m flights.producer` replays the flights, `flights.verify` checks
what came out.  Run with this folder's parent on PYTHONPATH.
"""
