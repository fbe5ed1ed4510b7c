"""The commands of the controller: itself, its switches, its jobs, and a deployment without it."""
