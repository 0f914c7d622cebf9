"""What is known of a topic, without changing anything: status, lag, and landed objects read back."""
