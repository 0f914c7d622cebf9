"""Modules of the operator and the sensors that need Airflow: connections, windows of runs, links, XCom."""
