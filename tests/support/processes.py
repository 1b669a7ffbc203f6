"""Services in processes of their own that cannot outlive the test run.

Each service is the child of a small guard (this file, run as a script). The guard waits for its standard input to end,
which happens when `Service.stop` closes it and also when the test run is killed with no chance to clean up. It then
stops the service and removes the service's scratch folder. Unlike a parent-death signal this works on Linux and macOS.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 10.0
START_SECONDS = 60.0
START_TRIES = 3
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run: the command, what it needs in the environment, and the address that answers once it is up.

    ``leftovers`` are files that the service makes outside its scratch folder and may forget when it ends.
    """

    command: Sequence[str]
    ready_url: str
    env: Mapping[str, str]
    leftovers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """A running service. ``scratch`` is its working folder and vanishes with it."""

    guard: subprocess.Popen[bytes]
    scratch: Path
    ready_url: str

    @property
    def log(self) -> str:
        """What the service has printed so far."""
        return (self.scratch / "log.txt").read_text(errors="replace")

    def stop(self) -> None:
        """End the service and remove its scratch folder. May be repeated."""
        assert self.guard.stdin is not None
        assert self.guard.stdout is not None
        self.guard.stdin.close()
        self.guard.wait(STOP_SECONDS * 2)
        self.guard.stdout.close()


def start(name: str, launch: Callable[[Path], Launch]) -> Service:
    """Start what ``launch(scratch)`` describes and return it once its address answers (with any HTTP status).

    A service that ends early is started again with a new `Launch`, because the likely cause is a port that was taken
    in between. Raises ``RuntimeError`` with the service's own output when it does not come up.
    """
    log = ""
    for _ in range(START_TRIES):
        scratch = Path(tempfile.mkdtemp(prefix=f"icefloe-{name}-"))
        service = _spawn(launch(scratch), scratch)
        if _wait_until_ready(service):
            return service
        with contextlib.suppress(OSError):
            log = service.log
        service.stop()
    raise RuntimeError(f"{name} did not start in {START_TRIES} tries; its last output:\n{log}")


def _spawn(launch: Launch, scratch: Path) -> Service:
    guard = subprocess.Popen(
        [sys.executable, "-I", __file__, str(scratch), json.dumps([*launch.leftovers]), *launch.command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=scratch,
        env={**os.environ, **launch.env},
        # Ctrl-C at the terminal must reach the tests only: they stop the service in order.
        start_new_session=True,
    )
    return Service(guard, scratch, launch.ready_url)


def _wait_until_ready(service: Service) -> bool:
    give_up_at = time.monotonic() + START_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < give_up_at:
        try:
            opener.open(service.ready_url, timeout=5).close()
            return True
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            # The guard closes its output when the service ends, so this is both the pause and the check for that.
            if select.select([service.guard.stdout], [], [], POLL_SECONDS)[0]:
                return False
    return False


def _guard(scratch: Path, leftovers: Sequence[str], command: Sequence[str]) -> None:
    """Run ``command`` until standard input ends, then stop it and leave nothing behind."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with (scratch / "log.txt").open("wb") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=scratch)
    try:
        threading.Thread(target=_report_end, args=(child,), daemon=True).start()
        sys.stdin.buffer.read()
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for leftover in leftovers:
            Path(leftover).unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _report_end(child: subprocess.Popen[bytes]) -> None:
    child.wait()
    os.close(sys.stdout.fileno())


if __name__ == "__main__":
    _guard(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
