"""Runs with policy=elastic beside other runs on a share of the host with a limit, for tests of the memory that they
give back and take again. The tests wait for events, not for times."""

import signal

from support import INTERRUPTED, TIMED, Case

WAIT = ["wait_for_gpu=true", "gpu_check_interval_seconds=0.05"]
# A job that takes the returned memory fills the device; the frequent checks for memory pressure must not react to that.
ELASTIC = ["policy=elastic", "policy.elastic.shrink_after_seconds=0", "policy.elastic.grow_after_seconds=0",
           "memory.check_interval_seconds=0.01"]


def device_of(mebibytes):
    return ["backend.devices=1", f"backend.memory_mb={mebibytes}"]


def amount(choice):
    """Returns the bytes that a decision has taken; a negative number: bytes returned."""
    number, unit, *what = choice.split()
    sign = {"given back": -1, "taken again": 1}[" ".join(what)]
    return sign * float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20}[unit]


class ElasticCase(Case):
    command = "train"

    def until_said(self, text, process):
        """Waits for text on standard error, which the process's result then lacks."""
        self.assertTrue(any(text in line for line in process.stderr), text)

    def decisions(self, run, by="policy.elastic", why="reason"):
        """Returns [(step, choice, reason)] of the policy's decisions so far."""
        path = self.folder / run / "events.jsonl"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        (self.folder / "seen").mkdir(exist_ok=True)
        (self.folder / "seen" / "events").write_text(whole)
        return [(e["step"], e["choice"], e.get(why)) for e in self.records("seen", "events")
                if e["event"] == "decision" and e["by"] == by]

    def begin(self, run, *words):
        process = self.start(self.command, f"run.dir={run}", *words)
        self.until(lambda: self.steps(run), process)
        return process

    def until_decided(self, run, count, process):
        """Waits for a number of decisions, and for a checkpoint of a later step than the last of them."""
        self.until(lambda: len(self.decisions(run)) >= count, process)
        decided = self.decisions(run)[count - 1][0]
        self.until(lambda: self.steps(run)[-1] > decided, process)
        return self.steps(run)[-1]

    def until_taken(self, run, process):
        """Waits until the run has taken back the memory that it returned: in one decision, or in several if the other
        job still runs after the first."""
        def is_whole():
            decisions = self.decisions(run)
            left = sum(amount(choice) for _, choice, _ in decisions)
            return len(decisions) > 1 and abs(left) < 0.06 * 2**20 * len(decisions)  # printed amounts are rounded
        self.until(is_whole, process)
        return self.until_decided(run, len(self.decisions(run)), process)

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        return self.finish(process, INTERRUPTED)

    def assert_as_alone(self, run, step, *words):
        """Asserts that the results at `step` equal those of a run alone on a host without limits."""
        alone = self.start(self.command, f"run.dir={run}-alone", *words)
        self.until(lambda: any(made >= step for made in self.steps(f"{run}-alone")), alone)
        self.end(alone)
        self.assert_same_checkpoint(run, f"{run}-alone", step)
        records = [[{k: v for k, v in r.items() if k not in TIMED} for r in self.records(name)
                    if r["step"] <= step] for name in (run, f"{run}-alone")]
        self.assertEqual(*records)
