"""Jobs of several ranks for tests: starts them with mpirun, and finds their remaining processes."""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

RANKS = os.environ.get("BRIM_DIST_RANKS")        # the program dist_ranks
MPIRUN = shlex.split(os.environ["BRIM_MPIRUN"])  # ends with the option for the number of ranks
SKIPPED = 77                                   # exit status of a test that this machine does not permit
HANG_SECONDS = 600                             # limit for a job that hangs, also on a slow or busy machine

# For Open MPI: allows more ranks than processors, does not bind them, and allows root to start jobs. Open MPI reads
# other variables from version 5 on; MPICH needs no variables.
ENVIRONMENT = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "PRTE_MCA_hwloc_default_binding_policy": "none",
               "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               # MPI keeps memory until a process ends; these are not brim's leaks
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def ranks_among(processes):
    """Returns those of the processes that are ranks of brim, by Open MPI's numbers: {rank: process}."""
    found = {}
    for process in processes:
        try:
            name = pathlib.Path(f"/proc/{process}/comm").read_bytes().strip()
            environment = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [int(word.split(b"=")[1]) for word in environment if word.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank and name == b"brim":
            found[rank[0]] = process
    return found


class Job:
    """A running job. Its processes are found by a mark in their environment."""

    def __init__(self, folder, words, env=None, before=()):
        self.mark = f"BRIM_TEST_JOB={uuid.uuid4()}"
        name, value = self.mark.split("=")
        environment = {**os.environ, **ENVIRONMENT, "TMPDIR": str(folder), name: value, **(env or {})}
        self.process = subprocess.Popen([*before, *words], cwd=folder, env=environment, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def processes(self):
        """Returns the ids of the remaining processes. A process that has ended but was not waited for has no
        environment."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    def lines(self):
        """Returns the command lines of the remaining processes, for messages."""
        found = []
        for process in self.processes():
            try:
                line = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(f"{process}: {line}")
            except OSError:
                pass
        return found

    def kill(self):
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.communicate()

    def finish(self):
        """Returns exit status, standard output and standard error."""
        out, err = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, out, err


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="brim-dist-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def job(self, count, *words, env=None):
        job = Job(self.folder, [*MPIRUN, str(count), *map(str, words)], env)
        self.addCleanup(job.kill)
        return job

    def ranks(self, count, *words, status=0, env=None):
        """Runs dist_ranks to its end; returns standard output and error."""
        job = self.job(count, RANKS, "mpi", *words, env=env)
        found, out, err = job.finish()
        if status is not None:
            self.assertEqual(found, status, out + err)
        self.assert_nothing_left(job)
        return out, err

    def assert_nothing_left(self, job):
        deadline = time.monotonic() + HANG_SECONDS
        while job.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(job.lines(), [])
