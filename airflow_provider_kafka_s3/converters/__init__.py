"""Values of records to Arrow arrays."""
