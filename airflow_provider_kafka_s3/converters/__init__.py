"""Converters: bytes of keys and values to Arrow arrays, and back."""
