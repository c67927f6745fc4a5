"""What the controller tells of its work on the topic of events.

`of_execution` and `of_status` say which events a step of the execution and a new status are.  `log` numbers them.
"""
