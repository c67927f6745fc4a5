"""What one window shows: views, and pure functions of them."""
