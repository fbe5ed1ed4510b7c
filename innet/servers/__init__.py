"""Servers that aggregate without a switch, or above the switches of several racks."""
