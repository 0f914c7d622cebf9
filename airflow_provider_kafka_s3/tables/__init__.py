"""Tables over landed objects: Iceberg, Glue and Hive, and DDL."""
