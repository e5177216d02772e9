"""Two processes of torchrun, one thread each."""

import os
import sys

from scripts import run_script


def torchrun(path, *arguments, folder, seconds=150):
    """Run a script on two processes in a folder; what they have written. Fails if one of them does."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = run_script([*command, *map(str, arguments)], timeout=seconds, env=environment, cwd=folder)
    assert found.returncode == 0, found.stderr[-4000:]
    return found.stdout
