"""Commands of the controller: `machine` decides (pure), `journal` remembers on disk, `processes` starts and stops."""
