"""Encoder, heads, and the folders they live in."""
