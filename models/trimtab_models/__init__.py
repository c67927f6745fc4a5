"""The optimisation models of Trimtab and the messages that go over the wire.  Decides; does no I/O."""
