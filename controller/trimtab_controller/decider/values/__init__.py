"""Values: reasons, decisions, settings.  No logic of a policy, and no state."""
