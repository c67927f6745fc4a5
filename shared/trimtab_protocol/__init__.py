"""What agents, engine plug-ins and controllers say to each other: messages, signatures, shared settings.  No I/O."""
