"""The page: what pipelines have landed, as HTML and as JSON. It reads, and writes nothing."""
