"""Tests brim train dist.ranks=N: brim starts the ranks itself, watches them, and leaves no process running."""

import os
import pathlib
import shutil
import signal
import socket
import struct

from support import DONE, FAILED, INTERRUPTED, LOAD, NO_FIT, SMALL, USAGE, Case, fewer_of, main

# Open MPI keeps some memory until the process ends; these are not brim's leaks.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

RANKS = 3
LONG = [*SMALL, "training.steps=1000000", "training.checkpoint_every_steps=50", "training.eval_every_steps=1000000",
        "training.num_workers=0"]


def processes():
    """Returns the ids and command lines of all processes."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            yield int(path.name), (path / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue


class Launched(Case):
    def started(self, run):
        """Returns the job's processes: the command lines of the launcher, of mpirun and of the ranks contain the run's
        folder."""
        return {pid: words for pid, words in processes() if f"run.dir={self.folder / run}" in words}

    def ranks_of(self, run):
        """Returns the ranks among the job's processes, by mpirun's variables."""
        out = {}
        for pid in self.started(run):
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            out.update({int(line.split(b"=")[1]): pid for line in environment
                        if line.startswith(b"OMPI_COMM_WORLD_RANK=")})
        return out

    def launch(self, run, *overrides, env=None):
        return self.start("train", f"dist.ranks={RANKS}", f"run.dir={self.folder / run}", *overrides, env=env)

    def launch_long(self, run, *overrides):
        """Starts a job and waits until it has written a checkpoint."""
        process = self.launch(run, *LONG, *overrides)
        self.until(lambda: process.poll() is not None or self.steps(run))
        self.assertIsNone(process.poll())
        return process

    def assert_nothing_runs(self, run):
        self.until(lambda: not self.started(run))


class Together(Launched):
    def test_a_run(self):
        result = self.finish(self.launch("run", *SMALL, "training.epochs=2"), DONE)
        self.assertEqual(result.out.count("results in "), 1, result)
        self.assertIn(f"{RANKS} ranks", result.out, result)
        self.assertEqual(self.summary("run")["status"], "finished")
        self.assertEqual({r["rank"] for r in self.records("run", "events.jsonl") if r["event"] == "rank"},
                         set(range(RANKS)))
        self.assert_nothing_runs("run")

    def test_words_keep_their_positions(self):
        result = self.brim("--quiet", "train", "dist.ranks=2", "--", "run.dir=a folder", *SMALL)
        self.assertEqual(result.err, "")
        self.assertEqual(self.summary("a folder")["status"], "finished")

    def test_processors_are_shared_out(self):
        processors = os.sched_getaffinity(0)
        if len(processors) < 2:
            self.skipTest("needs more than one processor")
        process = self.start("train", "dist.ranks=2", f"run.dir={self.folder / 'run'}", *LONG)
        self.until(lambda: process.poll() is not None or self.steps("run"))
        own = [os.sched_getaffinity(pid) for pid in self.ranks_of("run").values()]
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.assertEqual(len(own), 2)
        if own[0] != processors:  # fewer cores than ranks: every rank uses all of them
            self.assertFalse(own[0] & own[1])
            self.assertEqual(len(own[0]), len(own[1]))

    def test_ranks_take_a_device_each(self):
        """Each of two devices has room for one rank."""
        wide = [*SMALL, "model.hidden=[450]", "backend.devices=2", "backend.memory_mb=1"]
        self.brim("train", "dist.ranks=2", "run.dir=two", *wide)
        self.assertGreater(self.summary("two")["planned_peak_bytes"], 512 * 1024)
        result = self.brim("train", "dist.ranks=2", "run.dir=one", *wide, "device=cpu:1", status=NO_FIT)
        self.assertEqual(result.err.count("error: "), 1, result)

    def test_a_sweep_starts_the_ranks_of_each_job(self):
        result = self.brim("train", "-m", "dist.ranks=2", "seed=1,2", "run.dir=sweep", *SMALL)
        self.assertIn("2 finished", result.out, result)
        for job in ("0", "1"):
            self.assertEqual({r["rank"] for r in self.records(f"sweep/{job}", "events.jsonl") if r["event"] == "rank"},
                             {0, 1})


def listening(process):
    """Returns the (address, port) pairs at which a process listens."""
    sockets = set()
    for fd in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            sockets.add(os.readlink(fd))
        except OSError:
            continue
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in pathlib.Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] != "0A" or f"socket:[{words[9]}]" not in sockets:
                continue
            address, port = words[1].split(":")
            parts = [int(address[i:i + 8], 16) for i in range(0, len(address), 8)]
            found.append((socket.inet_ntop(family, struct.pack(f"={len(parts)}I", *parts)), int(port, 16)))
    return found


class Network(Launched):
    def test_ranks_of_one_machine_do_not_listen_and_a_connection_to_mpirun_delays_no_end(self):
        process = self.launch_long("run")
        ranks = self.ranks_of("run")
        self.assertEqual({rank: listening(pid) for rank, pid in ranks.items()}, {rank: [] for rank in range(RANKS)})
        mpirun, = (pid for pid in self.started("run") if pid not in ranks.values() and pid != process.pid)
        idle = []
        for address, port in listening(mpirun):
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
            idle.append(socket.create_connection((host, port)))
            self.addCleanup(idle[-1].close)
        self.assertTrue(idle)
        process.send_signal(signal.SIGTERM)
        result = self.finish(process, INTERRUPTED)
        self.assertNotIn("error: ", result.err)
        self.assertEqual(self.summary("run")["status"], "interrupted")
        self.assert_nothing_runs("run")


class Mistakes(Launched):
    def test_errors_of_all_ranks_are_printed_once(self):
        for wrong, part in (("los=1", "unknown key 'los'"), ("loss.class_weights=[1,2]", "loss.class_weights has 2")):
            result = self.finish(self.launch("run", *SMALL, wrong), USAGE)
            self.assert_error(result, part)
            self.assertEqual(result.err.count("error: "), 1, result)
            self.assertNotIn("mpirun", result.err, result)

    def test_no_mpirun(self):
        result = self.finish(self.launch("run", *SMALL, env={"PATH": str(self.folder)}), LOAD)
        self.assert_error(result, "dist.ranks=3 needs MPI: there is no mpirun on the PATH", "install Open MPI")

    def test_an_mpirun_that_fails_is_quoted(self):
        script = self.folder / "mpirun"
        script.write_text("#!/bin/sh\necho not today >&2\nexit 7\n")
        script.chmod(0o755)
        result = self.finish(self.launch("run", *SMALL, env={"PATH": f"{self.folder}:{os.environ['PATH']}"}), FAILED)
        self.assert_error(result, "mpirun ended with exit status 7 when 0 of 3 ranks had started", "not today")


class Ends(Launched):
    def assert_one_error(self, result, *parts):
        self.assert_error(result, *parts)
        self.assertEqual(result.err.count("error: "), 1, result)
        self.assertNotIn("----", result.err, result)

    def test_a_rank_that_is_killed_is_named(self):
        for rank in fewer_of(range(RANKS), 2):
            run = f"run{rank}"
            process = self.launch_long(run)
            pid = self.ranks_of(run)[rank]
            os.kill(pid, signal.SIGKILL)
            result = self.finish(process, FAILED)
            self.assert_one_error(result, f"rank {rank} (process {pid}) was killed by signal 9",
                                  f"with: brim train --resume {self.folder / run}")
            self.assert_nothing_runs(run)

    def test_a_rank_that_hangs_is_named(self):
        process = self.launch_long("run", "dist.timeout_seconds=8")
        self.suspend(self.ranks_of("run")[1])
        result = self.finish(process, FAILED)
        self.assert_one_error(result, "rank 1")
        self.assert_nothing_runs("run")

    def with_a_rank_that_does_not_begin(self):
        """Returns the environment of a launcher whose mpirun stops rank 1 before that executes brim, and then creates
        the file "stopped"."""
        folder = self.folder / "bin"
        folder.mkdir()
        rank = folder / "rank"
        rank.write_text('#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 1 ] && touch stopped && kill -STOP $$\nexec "$@"\n')
        mpirun = folder / "mpirun"  # -n RANKS PROGRAM WORDS
        mpirun.write_text(f'#!/bin/sh\nn=$2\nshift 2\nexec {shutil.which("mpirun")} -n "$n" {rank} "$@"\n')
        for path in (rank, mpirun):
            path.chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_a_rank_that_does_not_begin_is_named(self):
        result = self.finish(self.launch("run", *SMALL, "dist.timeout_seconds=2",
                                         env=self.with_a_rank_that_does_not_begin()), FAILED)
        self.assert_one_error(result, "of 3 ranks, some did not start within dist.timeout_seconds=2")
        self.assertRegex(result.err, r": (0, )?1(, 2)?\n")  # on a busy machine the message names the others too
        self.assert_nothing_runs("run")

    def test_a_signal_ends_ranks_that_wait_for_one_that_does_not_begin(self):
        process = self.launch("run", *SMALL, env=self.with_a_rank_that_does_not_begin())
        self.until((self.folder / "stopped").exists)
        process.send_signal(signal.SIGTERM)
        self.finish(process, -signal.SIGTERM)
        self.assert_nothing_runs("run")

    def test_interrupted_and_resumed(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = f"run{int(number)}"
            process = self.launch_long(run)
            process.send_signal(number)
            result = self.finish(process, INTERRUPTED)
            self.assertEqual(result.err.count("with: brim train --resume"), 1, result)
            self.assert_nothing_runs(run)
            step = self.steps(run)[-1]
            # Any number of ranks can resume.
            ranks, words = (2, ["dist.ranks=2"]) if number == signal.SIGTERM else (RANKS, [])
            process = self.start("train", "--resume", run, *words)
            self.until(lambda: process.poll() is not None or self.steps(run)[-1] > step)
            process.send_signal(number)
            self.assertIn(f"{ranks} ranks", self.finish(process, INTERRUPTED).out)

    def test_a_killed_launcher_leaves_nothing(self):
        process = self.launch_long("run")
        process.kill()
        self.finish(process)
        self.assert_nothing_runs("run")

    def test_a_killed_mpirun_leaves_nothing(self):
        process = self.launch_long("run")
        ranks = self.ranks_of("run").values()
        mpirun = [pid for pid in self.started("run") if pid not in ranks and pid != process.pid]
        self.assertEqual(len(mpirun), 1)
        os.kill(mpirun[0], signal.SIGKILL)
        self.assert_one_error(self.finish(process, FAILED), "mpirun was killed by signal 9")
        self.assert_nothing_runs("run")


if __name__ == "__main__":
    main()
