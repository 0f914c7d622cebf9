"""The control documents of a topic: plan, manifest, marker, run, owner, and their encoding."""
