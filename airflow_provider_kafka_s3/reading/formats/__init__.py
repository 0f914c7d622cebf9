"""How the objects of each format are read: one class for each, chosen in one place."""
