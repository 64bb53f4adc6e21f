"""An interpreter for many short programs that all begin with the same long import."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

FORKING = """
import json, os, sys, traceback
exec(sys.argv[2], {})
for line in sys.stdin:
    asked = json.loads(line)
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.chdir(asked["folder"])
            sys.argv = asked["argv"]
            exec(compile(asked["code"], "asked", "exec"), {"__name__": "__main__"})
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.write(int(sys.argv[1]), b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


class Interpreter:
    """One that has run ``begin``: each program runs in a fork of it, for which all of that is imported already."""

    def __init__(self, python: str, begin: str, log: Path) -> None:
        self._log = log
        ours, theirs = os.pipe()
        with log.open("wb") as stream:
            argv = [python, "-c", FORKING, str(theirs), begin]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=stream, stderr=stream, pass_fds=(theirs,), text=True
            )
        os.close(theirs)
        self._answers = open(ours)  # noqa: SIM115 - open as long as the process

    def run(self, code: str, folder: Path, *argv: object) -> int:
        """The exit status of ``code`` in ``folder``; fails the test where there is none."""
        asked = {"code": code, "folder": str(folder), "argv": list(map(str, argv))}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        status = self._answers.readline()
        assert status, self.said()
        return int(status)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        self._process.communicate(timeout=60)
        self._answers.close()
