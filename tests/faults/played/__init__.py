"""The fault matrix: a steered cluster suffers one cell after the other.

A cell is a fault (`faults`, `forgeries`) at a moment (`moments`); `cells` says which are played, why not the others.
`stage` is the cluster, `campaign` plays, `recorded` (beside this package) judges, `table` prints.
"""
