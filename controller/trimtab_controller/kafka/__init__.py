"""The adapters to Kafka: everything that blocks, retries or is refused is here."""
