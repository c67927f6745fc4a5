"""What agent and controller share and the models may not do: serving metrics, reading files of keys and passwords,
finding where to begin to read a topic.
"""
