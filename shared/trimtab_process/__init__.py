"""I/O code shared by agent and controller: metrics port, files of keys and passwords, Kafka offsets and errors."""
