"""What operators want: intents, approvals, restarts, maintenance, times without plans.  Pure."""
