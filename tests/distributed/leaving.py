"""Three processes, of which one leaves its loop and says nothing, and the others raise: how Python ends there.

    python leaving.py FOLDER TIMES

Each time prints the exit codes. A thread that is inside torch while Python shuts down may abort it: -6.
"""

import atexit
import os
import sys
import threading
import time
from pathlib import Path

AT, TIMEOUT, GRACE = 3, 3.0, 0.3


def check_threads():
    """End with 5 if there is another thread."""
    if len(threading.enumerate()) > 1:
        sys.stderr.flush()
        os._exit(5)


if __name__ == "__main__":
    atexit.register(check_threads)  # before all others: it runs last

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import emais.distributed  # noqa: E402


def train(rank, path):
    """Rank 1 ends, rank 2 sleeps, and rank 0 asks both where they are."""
    torch.set_num_threads(1)
    emais.distributed.GRACE = GRACE
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=3)
    imp = emais.EMAIS(64, batch_size=4, process_group=dist.group.WORLD, timeout=TIMEOUT)
    for step in range(1, 6):
        draw = imp.draw()
        if (rank, step) == (1, AT):
            raise KeyError("a bug in a loop")
        if (rank, step) == (2, AT):
            time.sleep(TIMEOUT + 2)
            os._exit(0)
        z = torch.ones(4, 3, requires_grad=True)
        imp.loss(z.sum(1), z, draw)


def start(rank, path):
    if child := os.fork():
        return child
    train(rank, path)
    sys.exit()


def main(folder, times):
    aborted = False
    for k in range(times):
        children = [start(rank, Path(folder) / f"store-{k}") for rank in range(3)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        aborted = aborted or min(codes) < 0
        print(codes, flush=True)
    sys.exit(aborted)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
