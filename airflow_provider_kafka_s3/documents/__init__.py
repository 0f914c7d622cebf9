"""The control documents of a topic: plan, manifest, marker, run, owner, index, and their encoding."""
