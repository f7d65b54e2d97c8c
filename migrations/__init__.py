"""The schema's history. Hand-written, in order, each safe to run while the previous release serves."""
