"""Everything that commands share: consoles, exit codes and options."""
