"""A stand-in for the demo's training that writes more warnings than a pipe takes."""

import json
import sys

if __name__ == "__main__":
    _, _, workers = sys.argv[1:]
    for rank in range(int(workers)):
        sys.stderr.write("a warning\n" * 20_000)
        sys.stderr.flush()
        sys.stdout.write(json.dumps({"rank": rank, "parameters": "same"}) + "\n")
