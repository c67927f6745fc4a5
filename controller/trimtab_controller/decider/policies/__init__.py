"""What is decided: `order` says what comes before what.  Asking changes nothing."""
