"""The command line ``kafka-s3``: a thin layer over :class:`~airflow_provider_kafka_s3.pipeline.TopicPipeline`."""
