"""Typed state tables, checkpointed by epoch: the durable memory of the sink, and a library of its own."""
