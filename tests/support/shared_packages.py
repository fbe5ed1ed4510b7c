"""A link from one virtual environment to the packages of this one: ``shared_packages.py FOLDER``."""

import sys
import sysconfig
from pathlib import Path


def main(folder: str) -> None:
    [packages] = Path(folder).glob("lib/python*/site-packages")
    own = sysconfig.get_path("purelib")
    # An editable installation is a .pth file, which counts in a site folder only.
    (packages / "shared.pth").write_text(f"import site; site.addsitedir({own!r})\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
