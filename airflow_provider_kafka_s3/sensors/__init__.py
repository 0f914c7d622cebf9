"""Sensors: wait until a run is worth while, or until its window is complete."""
