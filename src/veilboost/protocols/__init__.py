"""The protocols: one folder each, all driven level by level through messages."""
