"""Networks under the training algorithms: threads, a process group, the innet agent; ring and tree."""
