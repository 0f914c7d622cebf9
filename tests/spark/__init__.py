"""The job on a real Spark."""
