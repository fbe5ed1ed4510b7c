"""The commands about the controller, switches, jobs and quotas, and deployment without a controller."""
