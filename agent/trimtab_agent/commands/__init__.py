"""Carries out the controller's commands.

`machine` decides (pure), `journal` keeps state on disk, `processes` starts and stops workers.
"""
