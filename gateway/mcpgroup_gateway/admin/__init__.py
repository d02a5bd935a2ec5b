"""The admin port: probes, metrics, status, explain, the page for people, and their records."""
