"""Names: which object a record belongs to, where it ends and what its key is; pure functions of plan and records."""
