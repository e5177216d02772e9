"""Scripts of several processes, run as a user would."""

import os
import subprocess
import sys

SECONDS = 400  # only a script that hangs takes so long: ten times what the longest needs beside other tests
# of torch itself, now and then: the end of a process after its work is done (pytorch#190489), and gloo's connections
# between processes of one machine (pytorch#53270)
NOT_OURS = ("terminate called without an active exception", "connectFullMesh failed")
ATTEMPTS = 3


def torchrun(processes, *command):
    """The command that starts a script so many times."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    return [str(word) for word in (*start, *command)]


def run_script(command, **options):
    """`subprocess.run`, and once more where torch could not start or end a process: one attempt must end cleanly.

    command: a list, or a function of the attempt that gives one, for a script that goes on from what it has written.
    """
    options = {"timeout": SECONDS, "env": os.environ, **options}
    for attempt in range(ATTEMPTS):
        own = command(attempt) if callable(command) else command
        found = subprocess.run(own, capture_output=True, text=True, **options)
        if found.returncode == 0 or not any(words in found.stderr for words in NOT_OURS):
            break
    return found
