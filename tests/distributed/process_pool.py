"""Two processes with a group of torch.distributed, kept for many tests: starting them costs more than most tests."""

import multiprocessing.connection
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
# now and then gloo cannot connect processes on one machine (pytorch#53270 saw it, too): all are then started again
NOT_CONNECTED, ATTEMPTS = "connectFullMesh failed", 3
# until others take over: each engine brings threads of gloo that stay and wake up 100 times a second
JOBS = 15


def join_group(rank, size, path):
    """Make this process one of a group, with one thread."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)


def _run(function, rank, size, path, pipe):
    """In a new process: say whether it has joined the group, then function(rank, pipe)."""
    try:
        join_group(rank, size, path)
    except RuntimeError as error:
        if NOT_CONNECTED not in str(error):
            raise
        pipe.send_bytes(b"not connected")
        return
    pipe.send_bytes(b"joined")
    function(rank, pipe)
    dist.destroy_process_group()


def start_processes(function, size, folder, environments=None):
    """(processes, pipes) that run function(rank, pipe) with a group; all anew where gloo could not connect them."""
    start, before = multiprocessing.get_context("spawn") if environments else START, dict(os.environ)
    for _ in range(ATTEMPTS):
        path = folder / f"store-{time.monotonic_ns()}"
        ends, processes = [START.Pipe() for _ in range(size)], []
        for rank, (_, theirs) in enumerate(ends):
            os.environ.update((environments or {}).get(rank, {}))
            processes.append(start.Process(target=_run, args=(function, rank, size, path, theirs)))
            processes[-1].start()
            theirs.close()  # so that the end of a process can be told
            os.environ.clear()
            os.environ.update(before)
        pipes = [own for own, _ in ends]
        if all(pipe.recv_bytes() == b"joined" for pipe in waited_for(pipes)):
            return processes, pipes
        kill(processes)
    raise AssertionError(f"gloo could not connect {size} processes, {ATTEMPTS} times")


def waited_for(pipes):
    """Pipes in the order in which something arrives."""
    waiting = list(pipes)
    while waiting:
        ready = multiprocessing.connection.wait(waiting, 300)
        assert ready, "a process does not answer"
        for pipe in ready:
            waiting.remove(pipe)
            yield pipe


def kill(processes):
    """End them, whatever they do."""
    for process in processes:
        process.kill()
        process.join()


def _serve(rank, pipe):
    while (job := pickle.loads(pipe.recv_bytes())) is not None:
        function, arguments = job
        torch.manual_seed(0)
        try:
            found = function(rank, **arguments), None
        except Exception as error:
            found = None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        pipe.send_bytes(pickle.dumps(found))  # by value: a pipe's own way with tensors is shared memory


class Pool:
    """pool(function, a=[1, 2], b=3) calls function(rank, a=.., b=..) on each process; a list is one value a rank."""

    def __init__(self, size, folder):
        self.size, self._folder = size, folder
        self._start()

    def _start(self):
        self._jobs = 0
        self._processes, self._pipes = start_processes(_serve, self.size, self._folder)

    def outcomes(self, function, **arguments):
        """(result, error) of each process."""
        for _ in range(ATTEMPTS):
            if self._jobs == JOBS:
                self.close()
                self._start()
            self._jobs += 1
            if (found := self._attempt(function, arguments)) is not None:
                return found
            kill(self._processes)
            self._start()
        raise AssertionError(f"gloo could not connect a group of {self.size}, {ATTEMPTS} times")

    def _attempt(self, function, arguments):
        """The outcomes; None as soon as gloo could not connect a group of the job, for which the others may wait."""
        for rank, pipe in enumerate(self._pipes):
            own = {name: value[rank] if isinstance(value, list) else value for name, value in arguments.items()}
            pipe.send_bytes(pickle.dumps((function, own)))
        found = {}
        for pipe in waited_for(self._pipes):
            found[pipe] = pickle.loads(pipe.recv_bytes())
            if NOT_CONNECTED in (found[pipe][1] or ""):
                return None
        return [found[pipe] for pipe in self._pipes]

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
        for pipe in self._pipes:
            pipe.send_bytes(pickle.dumps(None))
        for process in self._processes:
            process.join(10)
        kill(self._processes)


def run_apart(function, size, folder, seconds=200, environments=None):
    """function(rank, pipe) on processes of their own, which may die: (what each sent, exit code)."""
    processes, pipes = start_processes(function, size, folder, environments)
    found = []
    for pipe, process in zip(pipes, processes, strict=True):
        process.join(seconds)
        if process.is_alive():
            process.kill()
        found.append((sent(pipe), process.exitcode))
    return found


def sent(pipe):
    """What a process has sent before it ended; None if nothing."""
    try:
        return pipe.recv() if pipe.poll() else None
    except EOFError:
        return None
