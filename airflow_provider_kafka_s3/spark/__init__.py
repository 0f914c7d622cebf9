"""The Spark job: slices become frames on the driver, records become objects on the executors.

Only this package imports pyspark. It runs without Airflow: a job file describes each job.
"""
