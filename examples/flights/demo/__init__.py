"""`make demo`: the main job, end to end, judged.  `python -m flights.demo`."""
