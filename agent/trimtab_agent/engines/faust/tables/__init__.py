"""Tables of key groups: warm standbys and windows."""
