"""Two processes with a group of torch.distributed, kept for many tests: starting them costs more than most tests."""

import multiprocessing
import os
import pickle
import time
import traceback
import warnings

import torch
import torch.distributed as dist

START = multiprocessing.get_context("forkserver")  # imports torch once, for all processes
# pipelining imports what the first optimizer of each process would import, which takes it a second
START.set_forkserver_preload(["torch", "torch.distributed", "torch.distributed.pipelining", "emais"])


def join_group(rank, size, path):
    """Make this process one of a group, with one thread."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)


def _serve(rank, size, path, pipe):
    join_group(rank, size, path)
    while (job := pickle.loads(pipe.recv_bytes())) is not None:
        function, arguments = job
        torch.manual_seed(0)
        try:
            found = function(rank, **arguments), None
        except Exception as error:
            found = None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        pipe.send_bytes(pickle.dumps(found))  # by value: a pipe's own way with tensors is shared memory
    dist.destroy_process_group()


class Pool:
    """pool(function, a=[1, 2], b=3) calls function(rank, a=.., b=..) on each process; a list is one value a rank."""

    def __init__(self, size, folder):
        self.size, path = size, folder / f"store-{size}"
        ends = [START.Pipe() for _ in range(size)]
        self.pipes = [own for own, _ in ends]
        self.processes = [
            START.Process(target=_serve, args=(rank, size, path, theirs)) for rank, (_, theirs) in enumerate(ends)
        ]
        for process in self.processes:
            process.start()

    def outcomes(self, function, **arguments):
        """(result, error) of each process."""
        for rank, pipe in enumerate(self.pipes):
            own = {name: value[rank] if isinstance(value, list) else value for name, value in arguments.items()}
            pipe.send_bytes(pickle.dumps((function, own)))
        found = []
        for pipe in self.pipes:
            assert pipe.poll(300), "a process does not answer"
            found.append(pickle.loads(pipe.recv_bytes()))
        return found

    def __call__(self, function, **arguments):
        found = self.outcomes(function, **arguments)
        assert not [error for _, error in found if error], found
        return [result for result, _ in found]

    def errors(self, function, **arguments):
        """The message of each process, all of which must fail with one of ours."""
        found = [error for _, error in self.outcomes(function, **arguments)]
        assert all(error and error.startswith("EmaisError") for error in found), found
        return [error.splitlines()[0] for error in found]

    def close(self):
        for pipe in self.pipes:
            pipe.send_bytes(pickle.dumps(None))
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()


def run_apart(function, size, folder, seconds=200, environments=None):
    """function(rank, pipe) on processes of their own, which may die: (what each sent, exit code, seconds)."""
    path = folder / f"store-{time.monotonic_ns()}"
    ends = [START.Pipe() for _ in range(size)]
    processes, before = [], dict(os.environ)
    start = multiprocessing.get_context("spawn") if environments else START
    for rank, (_, theirs) in enumerate(ends):
        os.environ.update((environments or {}).get(rank, {}))
        processes.append(start.Process(target=_apart, args=(function, rank, size, path, theirs)))
        processes[-1].start()
        os.environ.clear()
        os.environ.update(before)
    found = []
    for (own, _), process in zip(ends, processes, strict=True):
        process.join(seconds)
        if process.is_alive():
            process.kill()
        found.append((own.recv() if own.poll() else None, process.exitcode))
    return found


def _apart(function, rank, size, path, pipe):
    join_group(rank, size, path)
    function(rank, pipe)
    dist.destroy_process_group()
