"""What operators ask of the controller, decided the same for command line and console.  Pure."""
