"""The protocol of agents, engine plug-ins and controllers: messages, signatures, shared settings.  No I/O."""
