"""The page in Airflow's web interface. Every process of Airflow loads the plugin, so nothing is imported too early."""
