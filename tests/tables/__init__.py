"""Tables in real catalogs, read by real engines."""
