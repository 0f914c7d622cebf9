"""What the operator and the sensors share and Airflow is needed for: connections, windows of runs, links, XCom."""
