"""Manual operations for topics whose runs cannot continue: abandon, accept losses, reset, recover, repair, clean."""
