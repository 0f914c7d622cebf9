"""The commit protocol: plan, manifest, marker, and the steps that lead from one to the next.

This package uses the store only through the ``storage`` port and Kafka only through :class:`~.source.Source`, so every
crash point and every race is tested in memory. ``docs/design/commit-protocol.md`` explains why it is safe.
"""
