"""Documents that follow the log of a topic: made from it, written behind it, and read for no decision."""
