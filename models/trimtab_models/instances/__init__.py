"""Problem instances: the documents that `trimtab solve` reads, as validated values."""
