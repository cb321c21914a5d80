"""Jobs of several ranks, started by mpirun as a user of a cluster starts them."""

import os
import shutil
import subprocess

from support import BINARY, Case, Result

MPIRUN = os.environ.get("BRIM_MPIRUN") or shutil.which("mpirun")

# More ranks than processors, on whatever machine: none is bound, and one that waits gives its processor away.
OVERSUBSCRIBED = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]


def mpi_environment():
    """Open MPI wants to be told that root knows what it does, as in a container."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return {**os.environ, **root, "LC_ALL": "C.UTF-8", "LSAN_OPTIONS": "detect_leaks=0"}


class Ranks(Case):
    """A test that starts jobs."""

    def start_ranks(self, ranks, *argv, env=None, program=BINARY):
        environment = {**mpi_environment(), "BRIM_CLAIMS_DIR": str(self.folder / "claims"),
                       "XDG_CACHE_HOME": str(self.folder / "cache"), **(env or {})}
        process = subprocess.Popen([MPIRUN, "-n", str(ranks), *OVERSUBSCRIBED, str(program), *map(str, argv)],
                                   cwd=self.folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self._end, process)
        return process

    def ranks(self, ranks, run, *overrides, status=0, env=None, program=BINARY):
        """`brim train` into the folder `run` by so many ranks."""
        process = self.start_ranks(ranks, "train", f"run.dir={run}", *overrides, env=env, program=program)
        out, err = process.communicate(timeout=280)
        result = Result(process.args[1:], process.returncode, out, err)
        self.assertEqual(result.status, status, result)
        return result
