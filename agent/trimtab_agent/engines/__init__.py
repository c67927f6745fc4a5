"""Plug-ins that live inside the engines' own processes."""
