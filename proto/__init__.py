"""Protobuf messages of everything that is persisted; ``make proto`` regenerates the code."""
