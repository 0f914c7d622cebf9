"""Starting the Spark job and reading its output. Nothing here imports Airflow or pyspark."""
