"""The machine below: sockets, TCP connections, forks, private files and environment variables."""
