"""What `packaging/test` consists of."""
