"""The controller: decides what moves, has it done, and keeps on record how far it has come."""
