"""Primitives that know bytes and points, and nothing of tables or trees."""
