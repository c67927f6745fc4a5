"""The optimisation models of Trimtab.  Pure computation; no I/O."""
