"""What waits in Airflow's triggerer for the sensors."""
