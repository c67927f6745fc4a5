"""What stops a worker before it can damage state: fence, store guard."""
