"""What replicas and proxies log: how it is asked for, what stands on each line, and under which name Ray shows it."""
