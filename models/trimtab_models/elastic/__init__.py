"""The Elastic Allocator: a greedy plan within a budget of operations, and how busy nodes are."""
