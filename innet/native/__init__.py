"""C code: the compiler of this machine, and the constants that C shares with Python."""
