"""Tables of key groups: warm standbys and expiry of windows."""
