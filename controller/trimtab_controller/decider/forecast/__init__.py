"""The demand of each app over time, what is forecast of it, and how good that has been.  Pure."""
