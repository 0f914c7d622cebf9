"""The interface to the object store, and its implementations for S3 and in memory."""
