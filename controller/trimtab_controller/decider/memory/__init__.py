"""What lasts longer than a window; policies read it, windows and decisions that are carried out write it."""
