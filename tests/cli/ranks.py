"""Jobs of several ranks, started by mpirun as on a cluster."""

import os
import pathlib
import subprocess
import sys

from support import BINARY, HANG_SECONDS, Case, Result

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "dist"))
from jobs import ENVIRONMENT, MPIRUN  # noqa: E402  pylint: disable=wrong-import-position


class Ranks(Case):
    """A test that starts jobs."""

    def start_ranks(self, ranks, *argv, env=None, program=BINARY):
        environment = {**os.environ, **ENVIRONMENT, "LC_ALL": "C.UTF-8", "BRIM_CLAIMS_DIR": str(self.folder / "claims"),
                       "XDG_CACHE_HOME": str(self.folder / "cache"), **(env or {})}
        process = subprocess.Popen([*MPIRUN, str(ranks), str(program), *map(str, argv)], cwd=self.folder,
                                   env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(self._end, process)
        return process

    def ranks(self, ranks, run, *overrides, status=0, env=None, program=BINARY):
        """Runs `brim train` on `ranks` ranks, into the folder `run`."""
        process = self.start_ranks(ranks, "train", f"run.dir={run}", *overrides, env=env, program=program)
        out, err = process.communicate(timeout=HANG_SECONDS)
        result = Result(process.args[1:], process.returncode, out, err)
        self.assertEqual(result.status, status, result)
        return result
