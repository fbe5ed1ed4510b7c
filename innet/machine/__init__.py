"""The machine below: sockets, TCP connections, forks, systemd, private files and the environment."""
