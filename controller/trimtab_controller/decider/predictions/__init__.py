"""What plans predict, beside what is measured afterwards.  Pure."""
