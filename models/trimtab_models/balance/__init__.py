"""The balance model: which key groups to move so that every node carries its share of the load."""
