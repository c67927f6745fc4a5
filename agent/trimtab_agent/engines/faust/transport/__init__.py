"""Faust's aiokafka driver (consumer, producer, transport) with the patches that `patches.py` lists."""
