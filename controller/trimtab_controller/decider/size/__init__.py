"""The number of workers of an app: how many it needs, which ones leave, and when that is decided.  Pure."""
