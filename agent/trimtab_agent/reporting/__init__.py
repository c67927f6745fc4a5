"""The host's reports: which workers there are, what they report, when it is sent."""
