"""What a DAG author imports."""
