"""The contract's messages in words, for logs, tables and error messages."""

from innet.rpc import innet_pb2 as pb

PATHS = {pb.PATH_NONE: "none", pb.PATH_SWITCH: "switch", pb.PATH_FALLBACK: "fallback"}


def misplaced(switch: str, link: pb.Uplink) -> str:
    """Return the sentence about an uplink that ends in a wrong place, or "" if it does not."""
    if not link.found:
        return ""
    return (
        f"the uplink at port {link.port} of {switch} was said to lead to port {link.parent_port} of "
        f"{link.parent}, and leads to {link.found}"
    )
