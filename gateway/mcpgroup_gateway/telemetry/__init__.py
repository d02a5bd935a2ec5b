"""What a replica records of itself: metrics, events, the request log, and redaction of secrets."""
