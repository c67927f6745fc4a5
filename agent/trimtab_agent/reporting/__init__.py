"""The host's reports: its workers, their measurements, and the time of sending."""
