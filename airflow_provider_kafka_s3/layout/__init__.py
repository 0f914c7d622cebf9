"""Layout: the object of each record, the end of each object, and its key; pure functions of plan and records."""
