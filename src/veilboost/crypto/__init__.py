"""Cryptographic primitives, independent of tables and trees."""
