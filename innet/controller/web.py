"""The web page of the controller: a process that asks the controller, as ``innet top`` does.

The page's work thus takes no time from the controller, and its failures stay its own. The controller
listens at the page's address before the process starts, and passes its log to the process. The process
ends when the pipe for the log is closed.
"""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from innet.errors import UsageError
from innet.machine.private import read_secret
from innet.machine.private_file import private_file
from innet.rpc.addresses import check_address, on_this_machine, served_address
from innet.rpc.tokens import new_token
from innet.telemetry.feed import LogFeed
from innet.terminal.options import LogFormat

_PROGRAM = "innet.observe.web.serve"
_ENDS_WITHIN = 5.0
_FREE_WITHIN, _LOOK_EVERY_S = 30.0, 0.1
_log = structlog.get_logger("innet.controller")


@dataclass(frozen=True)
class WebPage:
    """The settings of the page: its address, and what a browser has to show.

    With a `tls_folder` it speaks HTTPS. A browser has to show the token in `token_file`. Without such a
    file, it has to show the certificate of an administrator, a user or an observer if there is a
    `tls_folder`, and nothing otherwise.
    """

    address: str
    tls_folder: Path | None = None
    token_file: Path | None = None
    log_format: LogFormat = LogFormat.TEXT

    def check(self) -> None:
        """Raise UsageError if the page cannot be served, or would be open to other machines.

        A token is made if the file for it is missing.
        """
        check_address(self.address, "--web")
        if self.address.startswith("unix:"):
            raise UsageError(f"--web {self.address!r} is not HOST:PORT")
        if not (self.tls_folder or self.token_file or on_this_machine(self.address)):
            raise UsageError(
                f"--web {self.address} can be reached from other machines: give certificates with --tls, "
                "or a file for a token with --web-token-file"
            )
        if importlib.util.find_spec("nicegui") is None:
            raise ModuleNotFoundError(name="nicegui")
        if self.token_file:
            _check_token(self.token_file)

    @contextlib.contextmanager
    def served(self, controller: str, feed: LogFeed, within: float = 0.0) -> Iterator[str]:
        """Serve the page while the block runs, and yield its URL. `controller` is the address to ask.

        Raises UsageError if the address is still in use after `within` seconds.
        """
        with self._listener(within) as listener:
            address = served_address(self.address, listener.getsockname()[1])
            number = listener.fileno()
            options = ["--socket", str(number), "--controller", controller]
            log, pipe = os.pipe()
            process = subprocess.Popen(
                [*self._command, *options], stdin=log, pass_fds=[number], start_new_session=True
            )
            os.close(log)
        with _watched(process, pipe, feed):
            yield f"{'https' if self.tls_folder else 'http'}://{address}/"

    @property
    def _command(self) -> list[str]:
        files = {"--tls": self.tls_folder, "--token-file": self.token_file}
        given = [text for option, path in files.items() if path for text in (option, str(path))]
        command = [sys.executable, "-P", "-m", _PROGRAM, *given]
        return [*command, "--address", self.address, "--log-format", self.log_format]

    @contextlib.contextmanager
    def taken_over(self, controller: str, feed: LogFeed) -> Iterator[str]:
        """Serve the page as :meth:`served` does, in place of a controller that has just ended.

        Its page ends a moment later. If the address does not become free, log that and yield "": a
        controller without a page is better than none.
        """
        with contextlib.ExitStack() as stack:
            try:
                url = stack.enter_context(self.served(controller, feed, _FREE_WITHIN))
            except UsageError as problem:
                _log.error("the web page is not served", problem=str(problem))
                url = ""
            yield url

    def _listener(self, within: float) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        over = time.monotonic() + within
        while True:
            try:
                return socket.create_server((host, int(port)), family=family, backlog=128)
            except OSError as problem:
                if time.monotonic() >= over:
                    raise UsageError(
                        f"cannot serve the page at {self.address}: {problem}"
                    ) from None
            time.sleep(_LOOK_EVERY_S)


@contextlib.contextmanager
def _watched(process: "subprocess.Popen[bytes]", pipe: int, feed: LogFeed) -> Iterator[None]:
    """Feed the log to the page's process, log its unexpected end, and end it after the block."""
    closing = threading.Event()

    def watch() -> None:
        code = process.wait()
        if not closing.is_set():
            _log.error("the web page has ended", code=code)

    watcher = threading.Thread(target=watch, name="innet-web", daemon=True)
    watcher.start()
    feed.attach(pipe)
    try:
        yield
    finally:
        closing.set()
        feed.detach()
        os.close(pipe)
        watcher.join(_ENDS_WITHIN)
        process.kill()
        watcher.join()


def _check_token(path: Path) -> None:
    """Make a token if there is no file. Raises UsageError if the file has none, or cannot be used."""
    if not path.exists():
        with private_file(path) as file:
            file.write(new_token() + "\n")
    try:
        token = read_secret(path, roots_group=True).decode().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"cannot read the token in {path}: {problem}") from None
    if not token:
        raise UsageError(f"{path} holds no token: remove it, and one is made")
