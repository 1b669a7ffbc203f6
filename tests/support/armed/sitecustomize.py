"""Test only: arms a crash in every Python process of a Spark application, by ``ICEFLOE_TEST_CRASH``.

The variable is ``point|folder``. The first process that passes the point makes a file in the folder, then ends the JVM
above it and itself with SIGKILL: what a machine that loses its power does. Later passages do nothing.
"""

import os
import signal

_crash = os.environ.get("ICEFLOE_TEST_CRASH")

if _crash is not None:
    _point, _, _folder = _crash.partition("|")

    def _kill(name: str) -> None:
        if name != _point:
            return
        try:
            os.close(os.open(os.path.join(_folder, "crashed"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        import psutil

        for parent in psutil.Process().parents():
            if parent.name() == "java":
                parent.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    from icefloe.state import crash_points

    crash_points.arm(_kill)
