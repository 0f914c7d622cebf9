"""Sensors that wait for records to land, or for the end of a window."""
