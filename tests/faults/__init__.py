"""The protocol over HTTP, with faults of each request."""
