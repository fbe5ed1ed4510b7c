"""C code: the compiler of this machine, and the functions that it makes available."""
