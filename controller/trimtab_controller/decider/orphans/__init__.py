"""Key groups without an owner, and what restores of state take.  Pure."""
