"""The adapters to Kafka; all blocking, retrying and refusal happens here."""
