"""Who may use the console: tokens, sessions of browsers, failed logins."""
