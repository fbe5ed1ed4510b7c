"""The contract that controller, workers, observers and commands share: messages, client, TLS."""
