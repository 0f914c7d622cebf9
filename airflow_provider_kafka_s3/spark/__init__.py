"""The Spark job: slices become frames on the driver, records become objects on the executors.

This room is the only one that knows pyspark. It ships without Airflow: what runs here is told by a job file.
"""
