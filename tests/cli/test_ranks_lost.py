"""Tests that a rank that dies or hangs ends the whole job within the timeout, with one message that names it; the
committed steps are kept, and the run can be resumed. A rank whose weights have diverged is detected."""

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import unittest

from ranks import Ranks  # this makes the module jobs importable
from jobs import ranks_among  # pylint: disable=wrong-import-order
from support import BINARY, FAILED, FAULT_SHIM, HANG_SECONDS, SANITIZED, SMALL, fewer_of, main

SECONDS = 8  # dist.timeout_seconds
AT_ONCE = f"dist.timeout_seconds={2 * HANG_SECONDS}"  # longer than a test waits, so the job must end before
RUN = [*SMALL, "training.steps=1000000", "training.checkpoint_every_steps=50", "training.eval_every_steps=1000000",
       "training.num_workers=0", "dist.check_every_steps=10", f"dist.timeout_seconds={SECONDS}"]


def processes(folder):
    """Returns the ranks of brim in this folder: {rank: process}."""
    here = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "cwd") == str(folder):
                here.append(int(path.name))
        except OSError:
            continue
    return ranks_among(here)


class Jobs(Ranks):
    def begin(self, run, ranks, *overrides):
        """Starts a job that trains and waits for its first checkpoint; returns its process and its ranks' processes."""
        process = self.start_ranks(ranks, "train", f"run.dir={run}", *RUN, *overrides)
        self.until(lambda: self.steps(run), process)
        found = processes(self.folder)
        self.assertEqual(sorted(found), list(range(ranks)))
        return process, found

    def end(self, process):
        """Waits for the job and all its processes; returns its output."""
        _, err = process.communicate(timeout=HANG_SECONDS)
        self.until(lambda: not processes(self.folder), what="the end of all ranks")
        return err


class Lost(Jobs):
    def test_each_that_hangs(self):
        for rank in fewer_of(range(3), 2):
            process, found = self.begin(f"run{rank}", 3)
            self.suspend(found[rank])
            err = self.end(process)
            self.assertEqual(process.returncode, FAILED, err)
            self.assertEqual(err.count("error: "), 1, err)
            self.assertIn(f"rank {rank} of 3 is missing", err)

    def test_each_that_dies(self):
        for rank in fewer_of(range(3), 2):
            process, found = self.begin(f"run{rank}", 3, AT_ONCE)
            os.kill(found[rank], signal.SIGKILL)
            err = self.end(process)
            self.assertIn(f"rank {rank} ", err)

    def test_terminated(self):
        """A signal to any rank ends all of them, with a checkpoint of the same step."""
        for rank in (0, 2):
            process, found = self.begin(f"run{rank}", 3, AT_ONCE)
            os.kill(found[rank], signal.SIGTERM)
            err = self.end(process)
            self.assertEqual(process.returncode, 6, err)
            self.assertEqual(err.count("with: brim train --resume"), 1, err)
            self.assertEqual(self.summary(f"run{rank}")["steps"], self.steps(f"run{rank}")[-1])
            self.assertEqual(self.summary(f"run{rank}")["status"], "interrupted")


    @unittest.skipUnless(shutil.which("ompi_info"), "another MPI has other files")
    def test_the_next_job_removes_shared_memory_of_a_killed_mpirun(self):
        process, found = self.begin("run", 2)
        shared = set()
        for rank in found.values():
            mapped = pathlib.Path(f"/proc/{rank}/maps").read_text(encoding="utf-8")
            shared |= set(re.findall(r"/dev/shm/[^/\s]+(?=/vader_segment|/sm_segment)", mapped))
        self.assertEqual(len(shared), 2, shared)
        process.kill()
        process.communicate()
        self.until(lambda: not processes(self.folder))
        self.ranks(2, "next", *SMALL, "training.steps=2")
        self.assertEqual([folder for folder in shared if pathlib.Path(folder).exists()], [])


class Beginning(Ranks):
    """Until MPI has started, ranks cannot tell each other which ranks are missing."""

    def test_a_rank_that_stops_before_mpi_has_started(self):
        for rank in (0, 2):
            program = self.folder / f"stops{rank}"
            program.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = {rank} ] && kill -STOP $$\n'
                               f'exec {BINARY} "$@"\n')
            program.chmod(0o755)
            result = self.ranks(3, f"run{rank}", *SMALL, "dist.timeout_seconds=2", status=FAILED, program=program)
            self.assertIn("the 3 ranks did not connect within dist.timeout_seconds=2", result.err)
            self.assertEqual(processes(self.folder), {})


    @unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
    def test_while_mpi_starts_no_other_thread_reads_the_environment(self):
        shim = {"LD_PRELOAD": str(pathlib.Path(FAULT_SHIM).with_name("environment_shim.so"))}
        self.ranks(2, "run", *SMALL, "training.steps=2", env=shim)
        program = self.folder / "stops"
        program.write_text(f'#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && kill -STOP $$\nexec {BINARY} "$@"\n')
        program.chmod(0o755)
        late = self.ranks(2, "late", *SMALL, "dist.timeout_seconds=2", status=FAILED, program=program, env=shim)
        self.assertIn("did not connect", late.err)
        self.assertNotIn("getenv()", late.err)


class Drift(Jobs):
    """The test flips a bit in a rank's weights. The learning rate is 0, so the weights do not change otherwise."""

    def flip(self, process, pattern):
        """Flips a bit at every occurrence of the pattern in the process's memory. The process must be stopped, so that
        nothing moves."""
        count = 0
        with open(f"/proc/{process}/maps", encoding="utf-8") as maps, open(f"/proc/{process}/mem", "r+b", 0) as memory:
            for line in maps:
                area, rights = line.split()[:2]
                first, last = (int(word, 16) for word in area.split("-"))
                # Skips a sanitizer's shadow memory.
                if not rights.startswith("rw") or "[v" in line or last - first > 1 << 30:
                    continue
                try:
                    memory.seek(first)
                    data = memory.read(last - first)
                except (OSError, OverflowError):
                    continue
                at = data.find(pattern)
                while at >= 0:
                    memory.seek(first + at)
                    memory.write(bytes([pattern[0] ^ 1]))
                    count += 1
                    at = data.find(pattern, at + 1)
        return count

    def weights(self, run, name):
        data = (self.checkpoint(run, self.steps(run)[0]) / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        first, last = json.loads(data[8:8 + length])[name]["data_offsets"]
        return data[8 + length + first:8 + length + last]

    def test_weights_that_differ(self):
        process, found = self.begin("run", 2, "optimizer.lr=0", "optimizer.weight_decay=0",
                                    "training.keep_checkpoints=100000")
        name = "fc2.weight"
        pattern = self.weights("run", name)[:64]
        os.kill(found[1], signal.SIGSTOP)
        try:
            flipped = self.flip(found[1], pattern)
        except PermissionError:
            self.skipTest("another process's memory cannot be written here")
        finally:
            os.kill(found[1], signal.SIGCONT)
        self.assertGreater(flipped, 0)
        err = self.end(process)
        self.assertEqual(process.returncode, FAILED, err)
        self.assertEqual(err.count("error: "), 1, err)
        self.assertIn(f"rank 1 has other values of '{name}' than rank 0", err)


if __name__ == "__main__":
    main()
