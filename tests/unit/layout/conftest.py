"""Settings of the property tests."""

from __future__ import annotations

from hypothesis import settings

# Other test processes share the machine: so examples have no time limit.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
