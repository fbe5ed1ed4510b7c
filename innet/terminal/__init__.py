"""Everything that commands share: consoles, tables, options, signals and exit codes."""
