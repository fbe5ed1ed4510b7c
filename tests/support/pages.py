"""The commands that the documents tell users to type."""

import re

from paths import ROOT


def commands(page: str) -> dict[str, str]:
    """Return the commands that have a comment ``<!-- on WHERE: WHAT -->`` above, by ``WHERE: WHAT``."""
    text = (ROOT / page).read_text()
    found = re.findall(r"<!-- on (.+?) -->\n```sh\n(.*?)```", text, re.DOTALL)
    assert len(dict(found)) == len(found), f"{page} has two commands of one name"
    return dict(found)
