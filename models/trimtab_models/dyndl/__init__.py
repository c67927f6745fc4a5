"""DynDL: schedules tasks near their data, where remote tasks slow each other down; offline, online, baselines.

The paper leaves some points open.  Our decisions are cited as "settlement N" (tests: `test_settlement_N_...`):
1 the remote tasks of a server count for each other, also one after another; 2 what fits up to rounding, fits, and ties
go by task id; 3 phase I follows whole paths, not only single moves; 4 a failed search closes all servers that it
visited; 5 the fill considers how further remote tasks slow down the others; 6 waits count from when the core became
idle, and events at equal times have a fixed order; 7 tasks without a usable replica are remote; 8 online runs report
the model's makespan and the event time; 9 the generator of the paper's experiments.

Plans for balance name the target of each restore, so that order and number at a time are left to decide: `given`.
After a loss `targets` also chooses where to restore.  Only tests call `sizes` so far.  `benchmarks/dyndl` has the
generator of the paper's experiments, the other baselines, and the exact optimum of small instances.
"""
