"""What brokers and their clients say to each other, without any I/O: values, verbs, errors, messages."""
