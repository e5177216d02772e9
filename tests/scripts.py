"""Scripts of several processes, run as a user would."""

import os
import subprocess
import sys

SECONDS = 400  # only a script that hangs takes so long: ten times what the longest needs beside other tests
# seen in torch 2.13 without emais, too: now and then a process ends so after all of its work is done
ABORT = "terminate called without an active exception"
ATTEMPTS = 3


def torchrun(processes, *command):
    """The command that starts a script so many times."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    return [str(word) for word in (*start, *command)]


def run_script(command, **options):
    """`subprocess.run`, and once more where torch has aborted a process at its exit: one attempt must end cleanly.

    command: a list, or a function of the attempt that gives one, for a script that goes on from what it has written.
    """
    options = {"timeout": SECONDS, "env": os.environ, **options}
    for attempt in range(ATTEMPTS):
        own = command(attempt) if callable(command) else command
        found = subprocess.run(own, capture_output=True, text=True, **options)
        if found.returncode == 0 or ABORT not in found.stderr:
            break
    return found
