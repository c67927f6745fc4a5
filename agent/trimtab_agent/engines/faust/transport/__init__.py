"""Consumer, producer and transport of Faust's aiokafka driver, with the repairs that `patches.py` lists."""
