"""What a person decides when runs cannot go on by themselves: abandon, accept losses, reset, recover, repair, clean."""
