"""Two processes of torchrun, one thread each."""

import os

import scripts


def torchrun(path, *arguments, folder):
    """Run a script on two processes in a folder; what they have written. Fails if one of them does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = scripts.run_script(scripts.torchrun(2, path, *arguments), env=environment, cwd=folder)
    assert found.returncode == 0, found.stderr[-4000:]
    return found.stdout
