"""Tests traces of steps: observe.trace, brim trace, and their files in the run's folder."""

import collections
import gzip
import json
import os
import signal

from ranks import Ranks
from support import DONE, ENDLESS, INTERRUPTED, LOAD, SMALL, SMALL_CNN, USAGE, main, plain

RUN = [*SMALL, "backend=cpu", "training.steps=8", "training.epochs=0", "training.eval_every_steps=100",
       "training.checkpoint_every_steps=100"]
OPERATIONS = {"forward", "backward", "update", "evaluation", "check", "client"}


def check_format(events):
    """Asserts the requirements of Chrome's trace-event format."""
    for e in events:
        assert set(e) >= {"ph", "pid", "tid", "ts", "name"}, e
        assert e["ph"] in "XMCibesf" and isinstance(e["name"], str) and e["name"], e
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int), e
        assert isinstance(e["ts"], (int, float)), e
        if e["ph"] == "X":
            assert e["dur"] >= 0, e
        if e["ph"] == "C":
            assert all(isinstance(value, int) for value in e["args"].values()), e
        if e["ph"] == "M":
            member = "sort_index" if e["name"].endswith("_sort_index") else "name"
            assert e["name"] in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"), e
            assert isinstance(e["args"][member], int if member == "sort_index" else str), e
        if e["ph"] == "i":
            assert e["s"] in ("g", "p", "t"), e
        if e["ph"] in "besf":
            assert e["cat"] and e["id"].startswith("0x"), e
    tracks = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            begin = round(e["ts"] * 1000)
            tracks[e["pid"], e["tid"]].append((begin, -(begin + round(e["dur"] * 1000)), e["name"]))
    for track, spans in tracks.items():  # spans of a track are nested or disjoint
        ends = []
        for begin, end, name in sorted(spans):
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or -end <= ends[-1], (track, name)
            ends.append(-end)
    for e in events:  # a viewer binds the ends of an arrow to the slices around them
        if e["ph"] in "sf":
            slices = [x for x in events if x["ph"] == "X" and (x["pid"], x["tid"]) == (e["pid"], e["tid"])]
            assert any(x["ts"] - 0.001 <= e["ts"] <= x["ts"] + x["dur"] + 0.001 for x in slices), e
        if e["ph"] == "f":
            assert e["bp"] == "e", e
    arrows = collections.defaultdict(list)
    for e in sorted((e for e in events if e["ph"] in "sf"), key=lambda e: (e["ts"], e["ph"] == "f")):
        arrows[e["cat"], e["name"], e["id"]].append(e["ph"])
    assert all(ends == ["s", "f"] for ends in arrows.values()), arrows
    open_ids = collections.Counter(e["id"] for e in events if e["ph"] in "be")
    assert all(count == 2 for count in open_ids.values()), open_ids


class Traces(Ranks):
    def trace_of(self, run, name):
        """Returns the events of a file, and its other members."""
        data = gzip.decompress((self.folder / run / name).read_bytes())
        trace = json.loads(data)
        check_format(trace["traceEvents"])
        self.bytes = len(data)
        return trace["traceEvents"], trace["otherData"]

    @staticmethod
    def operations(events, rank=0):
        return [e for e in events if e["ph"] == "X" and e["pid"] == rank and e.get("cat") in OPERATIONS]

    @staticmethod
    def steps(events, rank=0):
        return sorted((e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"].startswith("step ")),
                      key=lambda e: e["ts"])

    @staticmethod
    def innermost(events, step):
        """Returns the innermost spans of the training thread in a step, as (begin, end, name)."""
        begin = round(step["ts"] * 1000)
        spans = sorted({(round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000), e["name"])
                        for e in events if e["ph"] == "X" and e["pid"] == step["pid"] and e["tid"] < 100},
                       key=lambda span: (span[0], -span[1]))
        spans = [s for s in spans if begin <= s[0] and s[1] <= begin + round(step["dur"] * 1000)]
        return [s for i, s in enumerate(spans)
                if s[1] > s[0] and not any(o[1] > o[0] and o != s and o[1] <= s[1] for o in spans[i + 1:i + 2])]

    def in_step(self, events, step):
        return [e for e in self.operations(events, step["pid"]) if step["ts"] <= e["ts"] <= step["ts"] + step["dur"]]


class Steps(Traces):
    def test_a_trace_has_every_operation_of_its_steps(self):
        self.train("run", *RUN, "observe.trace=3:6")
        events, about = self.trace_of("run", "trace-3-5.json.gz")
        steps = self.steps(events)
        self.assertEqual([e["name"] for e in steps], ["step 3", "step 4", "step 5"])
        names = [[e["name"] for e in self.in_step(events, step)] for step in steps]
        self.assertEqual(names[0], names[1])
        self.assertEqual(names[0], names[2])
        for name in ("linear+relu 'fc1'", "linear_grad_weight 'fc1'", "adamw 'fc1.weight'"):
            self.assertEqual(names[0].count(name), 1, names[0])
        self.assertEqual(len(names[0]) * 3, len(self.operations(events)), "no operation is outside of the steps")
        for step in steps:  # the host runs operations one after another
            self.assertLessEqual(sum(e["dur"] for e in self.in_step(events, step)), step["dur"])
        for e in self.operations(events):
            self.assertIn(" > ", e["args"]["shape"])
            self.assertTrue({"predicted_us", "guessed_us"} & set(e["args"]), e)
        self.assertLess(self.bytes, 1024 * len(self.operations(events)) + 4096, "at most 1 MiB for 1,000 operations")
        self.assertEqual((about["steps"], about["ranks"], about["lost_events"]), ([3, 5], 1, 0))
        host = {e["name"] for e in events if e["ph"] == "X"}
        self.assertLessEqual({"micro-batches", "wait for samples", "check the loss", "update", "zero gradients",
                              "copy micro-batch in"}, host)
        tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.assertLessEqual({"host", "operations", "copies in", "copies out"}, tracks)
        self.assertIn("traced", self.events("run"))

    def check_that_steps_are_filled(self, events, rank=0):
        """Checks that every moment of a step belongs to an operation, a copy or a phase of the host."""
        for step in self.steps(events, rank):
            spans = self.innermost(events, step)
            begin, end = round(step["ts"] * 1000), round(step["ts"] * 1000) + round(step["dur"] * 1000)
            self.assertNotIn(step["name"], [name for _, _, name in spans])
            self.assertEqual((spans[0][0], spans[-1][1]), (begin, end))
            for before, after in zip(spans, spans[1:]):
                self.assertEqual(before[1], after[0], (before, after))

    @plain
    def test_operations_and_phases_of_the_host_add_up_to_a_step(self):
        for run, more in (("mlp", []), ("accumulated", ["training.gradient_accumulation_steps=3",
                                                        "training.clip_norm=1", "training.num_workers=0"]),
                          ("evaluated", ["training.eval_every_steps=1", "training.checkpoint_every_steps=2"])):
            with self.subTest(run):
                self.train(run, *RUN, "observe.trace=2:6", *more)
                self.check_that_steps_are_filled(self.trace_of(run, "trace-2-5.json.gz")[0])
                table = self.json(run, "operations.json")
                parts = [row for row in table["operations"] if row["phase"] != "evaluation"] + table["host"]
                self.assertAlmostEqual(sum(row["seconds"] for row in parts), table["step_seconds"], delta=1e-7)

    @plain
    def test_a_trace_has_the_threads_that_decode_samples(self):
        """The threads are some micro-batches ahead, but not forty."""
        self.train("run", *RUN, "training.steps=48", "observe.trace=4:48")
        events, _ = self.trace_of("run", "trace-4-47.json.gz")
        self.assertIn("decode", {e["name"] for e in events if e["ph"] == "X"})
        self.assertIn("loader 0", {e["args"]["name"] for e in events if e["name"] == "thread_name"})

    @plain
    def test_the_counter_reaches_the_planned_peak_exactly(self):
        for run, small in (("mlp", SMALL), ("cnn", SMALL_CNN)):
            self.train(run, *small, "backend=cpu", "training.steps=3", "observe.trace=2")
            events, about = self.trace_of(run, "trace-2-2.json.gz")
            live = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == "live bytes"]
            self.assertEqual(max(live), self.summary(run)["planned_peak_bytes"])
            self.assertEqual(max(live), about["planned_peak_bytes"])

    def test_the_table_has_the_times_of_the_trace(self):
        self.train("run", *RUN, "observe.trace=3:6")
        events, _ = self.trace_of("run", "trace-3-5.json.gz")
        table = self.json("run", "operations.json")
        self.assertEqual((table["brim_operations"], table["steps"], table["trace"]), (1, [3, 5], "trace-3-5.json.gz"))
        self.assertIn("clock", table["measured_by"])
        rows = table["operations"]
        self.assertEqual(rows, sorted(rows, key=lambda row: -row["seconds"]))
        for row in rows:
            label = row["op"] if row["op"] == row["name"] else f"{row['op']} '{row['name']}'"
            own = [e for e in self.operations(events) if e["name"] == label and e["cat"] == row["phase"] and
                   e["args"]["shape"] == row["shape"]]
            self.assertEqual(len(own) / 3, row["runs"], row)
            self.assertAlmostEqual(sum(e["dur"] for e in own) * 1e-6 / 3, row["seconds"], delta=1e-8)
            self.assertGreater(row["predicted_seconds"], 0)
        shown = self.brim("trace", "run", "--top").out
        self.assertIn("steps 3 to 5 on ", shown)
        self.assertRegex(shown, r"(?m)^operation +name +phase +runs +ms a step +% +predicted +ratio$")
        self.assertRegex(shown, r"(?m)^wait for samples +host +1 ")
        self.assertTrue(all(row["guessed"] for row in rows))
        self.assertRegex(shown, r"(?m)^adamw .* \?\d+\.\d{3} +\d")
        self.assertIn("? guessed from the operation's work", shown)
        self.assertRegex(shown, rf"(?m)^{rows[0]['op'].replace('+', '.')} ")
        self.assertEqual(self.brim("trace", "run", "--json").json, table)

    @plain
    def test_a_trace_changes_nothing(self):
        self.train("plain", *RUN)
        self.train("traced", *RUN, "observe.trace=1:9", "observe.nvtx=true", "training.num_workers=2")
        self.assert_same_checkpoint("plain", "traced", 8)
        self.assert_same_records("plain", "traced")
        self.assertFalse((self.folder / "plain" / "operations.json").exists())

    def test_a_plan_that_changes_within_a_trace(self):
        result = self.train("run", *RUN, "observe.trace=3:7", env={"BRIM_FAULT": "step:5:update"})
        self.assertIn("recovery: back to step 0", result.err)
        events, _ = self.trace_of("run", "trace-3-6.json.gz")
        names = [e["name"] for e in self.steps(events)]
        self.assertEqual(names[:3] + names[-4:], [f"step {step}" for step in (3, 4, 5, 3, 4, 5, 6)])
        self.assertTrue(any(e["ph"] == "i" and e["name"].startswith("decision: recovery") for e in events), names)

    def test_evaluations_and_checkpoints_within_a_trace(self):
        self.train("run", *RUN, "observe.trace=3:6", "training.eval_every_steps=2", "training.checkpoint_every_steps=2")
        events, _ = self.trace_of("run", "trace-3-5.json.gz")
        self.assertLessEqual({"evaluate", "checkpoint"}, {e["name"] for e in events})
        self.assertIn("evaluation", {e.get("cat") for e in events})

    def test_states_in_host_memory_are_copies(self):
        self.train("run", *RUN, "observe.trace=3", "memory.offload=optimizer")
        events, _ = self.trace_of("run", "trace-3-3.json.gz")
        for name in ("copy state in", "copy state out"):
            self.assertGreater(sum(e["args"]["bytes"] for e in events if e["name"] == name), 0)

    @plain
    def test_the_end_of_the_run_ends_the_trace(self):
        result = self.train("run", *RUN, "observe.trace=7:20")
        self.assertIn("the run ends after step 8, and so does its trace", result.err)
        self.assertEqual(len(self.steps(self.trace_of("run", "trace-7-8.json.gz")[0])), 2)


class Asked(Traces):
    def test_a_running_process_is_traced(self):
        process = self.hold("run", *SMALL, "backend=cpu")
        out = self.brim("trace", "run").out.strip()
        events, _ = self.trace_of(".", out)
        self.assertEqual(len(self.steps(events)), 3)
        again = self.brim("trace", "run", "--steps", "5", "--top").out
        table = self.json("run", "operations.json")
        self.assertEqual(table["steps"][1] - table["steps"][0], 4)
        self.assertGreater(table["steps"][0], int(out.split("-")[1]))
        self.assertIn(f"steps {table['steps'][0]} to {table['steps'][1]} on ", again)
        self.assertFalse((self.folder / "run" / "trace.request").exists())
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        self.assert_error(self.brim("trace", "run", status=USAGE), "run 'run' has ended: it was interrupted",
                          "only a running process can be traced", "brim trace run --top")
        self.assertIn("operation", self.brim("trace", "run", "--top").out)

    def test_a_request_can_be_withdrawn(self):
        process = self.hold("run", *SMALL, "backend=cpu")
        self.suspend(process.pid)
        asking = self.start("trace", "run")
        self.until((self.folder / "run" / "trace.request").exists, asking)
        said = asking.stderr.readline() + asking.stderr.readline()
        self.assertRegex(said, rf"waiting: its process {process.pid} is stopped.* kill -CONT {process.pid} lets")
        asking.send_signal(signal.SIGINT)
        self.assertIn("the run will not trace its next steps", self.finish(asking, INTERRUPTED).err)
        self.assertFalse((self.folder / "run" / "trace.request").exists())
        os.kill(process.pid, signal.SIGCONT)

    @plain
    def test_a_run_that_ends_before_it_is_traced(self):
        process = self.hold("run", *SMALL, "backend=cpu")
        self.suspend(process.pid)
        asking = self.start("trace", "run")
        self.until((self.folder / "run" / "trace.request").exists, asking)
        process.kill()
        self.assert_error(self.finish(asking, USAGE), "run 'run' ended before its next steps were traced")
        self.assertFalse((self.folder / "run" / "trace.request").exists())


class Together(Traces):
    def check_ranks(self, events):
        self.assertEqual({e["pid"] for e in events}, {0, 1})
        for rank in (0, 1):
            self.assertEqual(len(self.steps(events, rank)), 3)
            self.assertGreater(len(self.operations(events, rank)), 0)
        votes = [sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                        if e["name"] == "vote: commit" and e["pid"] == rank) for rank in (0, 1)]
        self.assertEqual([len(each) for each in votes], [3, 3])
        for own, other in zip(*votes):  # both ranks use one clock, so neither leaves a vote before the other has come
            self.assertLess(own[0], other[1])
            self.assertLess(other[0], own[1])
        self.assertIn("all-reduce", {e["name"] for e in events if e["ph"] == "b"})
        self.check_arrows(events)

    def check_arrows(self, events):
        """Checks that each collective has an arrow from every rank's start to the end of the other rank's wait."""
        ends = collections.defaultdict(dict)
        for e in events:
            if e["ph"] in "sf":
                self.assertNotIn(e["ph"], ends[e["id"]], "an id has one arrow")
                ends[e["id"]][e["ph"]] = e
                around = [x["name"] for x in events if x["ph"] == "X" and (x["pid"], x["tid"]) == (e["pid"], e["tid"])
                          and x["ts"] <= e["ts"] <= x["ts"] + x["dur"]]
                self.assertIn("start a collective" if e["ph"] == "s" else "wait for a collective", around)
        whole = [arrow for arrow in ends.values() if len(arrow) == 2]
        self.assertEqual(2 * len(whole), len([e for e in events if e["ph"] == "b"]) * 2)
        for arrow in whole:
            self.assertNotEqual(arrow["s"]["pid"], arrow["f"]["pid"])
            self.assertEqual(arrow["s"]["name"], arrow["f"]["name"])
            self.assertLess(arrow["s"]["ts"], arrow["f"]["ts"])

    @plain
    def test_ranks_have_one_clock(self):
        self.ranks(2, "run", *RUN, "observe.trace=3:6")
        events, about = self.trace_of("run", "trace-3-5.json.gz")
        self.check_ranks(events)
        self.assertEqual(about["ranks"], 2)
        self.ranks(2, "plain", *RUN)
        self.assert_same_checkpoint("plain", "run", 8)

    @plain
    def test_all_ranks_heed_a_request(self):
        process = self.start_ranks(2, "train", "run.dir=run", *SMALL, "backend=cpu", *ENDLESS)
        self.until(lambda: self.has_begun("run"), process)
        self.check_ranks(self.trace_of(".", self.brim("trace", "run").out.strip())[0])

    def test_lanes_of_a_federation(self):
        self.brim("federate", "run.dir=run", *SMALL, "backend=cpu", "backend.threads=2", "total_clients=4",
                  "clients_per_round=4", "rounds=3", "parallel_clients=2", "training.batch_size=16",
                  "observe.trace=2")
        events, _ = self.trace_of("run", "trace-2-2.json.gz")
        self.assertEqual({e["cat"] for e in self.operations(events)} - OPERATIONS, set())
        lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name" and e["tid"] >= 1000}
        counted = {e["name"] for e in events if e["ph"] == "C"}  # a lane may have had no client in that round
        self.assertEqual({name for name in counted if "lane" in name}, {f"live bytes of {lane}" for lane in lanes})
        self.assertGreater(len([e for e in self.operations(events) if e["cat"] == "client"]), 0)


class Refused(Traces):
    def test_steps_that_do_not_parse(self):
        for text, what in (("x", "at character 1"), ("3:", "at character 3"), ("3:5:7", "at character 4"),
                           ("5:5", "has no step"), ("0:3", "has no step"), ("-1", "at character 1")):
            result = self.train("run", *RUN, f"observe.trace={text}", status=USAGE)
            self.assert_error(result, f"observe.trace={text}", what, "observe.trace=100:103 traces steps")
            self.assertFalse((self.folder / "run").exists(), "it is refused before the folder is made")

    @plain
    def test_steps_that_never_come_or_are_over(self):
        result = self.train("run", *RUN, "observe.trace=100:103", "training.steps=4")
        self.assertIn("the run has only 4 steps, so nothing will be traced", result.err)
        self.assertFalse((self.folder / "run" / "operations.json").exists())
        process = self.hold("long", *SMALL, "backend=cpu", "observe.trace=1:3")
        self.until((self.folder / "long" / "operations.json").exists, process)
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        resumed = self.start("train", "--resume", "long")
        self.until(lambda: "resumed" in self.events("long"), resumed)
        resumed.send_signal(signal.SIGINT)
        self.assertIn("these steps are over", self.finish(resumed, INTERRUPTED).err)

    @plain
    def test_folders_without_a_running_run(self):
        (self.folder / "empty").mkdir()
        self.assert_error(self.brim("trace", status=USAGE), "brim trace needs the folder of a run: brim trace RUN")
        self.assert_error(self.brim("trace", "nothing", status=LOAD), "there is no run 'nothing'")
        self.assert_error(self.brim("trace", "empty", status=LOAD), "'empty' is not the folder of a run")
        self.assert_error(self.brim("trace", "empty", "--steps", "0", status=USAGE), "--steps")
        self.train("run", *RUN)
        self.assert_error(self.brim("trace", "run", status=USAGE), "run 'run' has ended: it finished")
        self.assert_error(self.brim("trace", "run", "--top", status=LOAD), "run 'run' has no trace",
                          "brim train observe.trace=100:103")

    @plain
    def test_another_user_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        process = self.hold("run", *SMALL, "backend=cpu")
        self.assert_error(self.brim_as_user("trace", "run", status=USAGE), "run 'run' belongs to root",
                          "only that user and root can trace it", "you are nobody")
        os.chmod(self.folder / "run", 0o777)
        (self.folder / "other").write_text("steps 3\n", encoding="ascii")
        os.chown(self.folder / "other", 65534, 65534)
        os.rename(self.folder / "other", self.folder / "run" / "trace.request")  # another user could do the same
        self.assert_ignored(process, "is from another user (uid 65534); it was ignored")

    def assert_ignored(self, process, what):
        self.until(lambda: what in self.said(process), process, what=what)
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        self.assertFalse((self.folder / "run" / "operations.json").exists())

    def test_links_and_other_texts_are_no_requests(self):
        for make, what in ((lambda path: path.symlink_to("/etc/passwd"), "trace.request'"),
                           (lambda path: path.write_text("steps 1000000\n", encoding="ascii"), "is not a request"),
                           (os.mkfifo, "is not a file")):
            process = self.hold("run", *SMALL, "backend=cpu")
            make(self.folder / "run" / "trace.request")
            self.assert_ignored(process, what)
            self._delete_run("run")

    def _delete_run(self, run):
        os.rename(self.folder / run, self.folder / f"old-{len(list(self.folder.iterdir()))}")

    def test_what_cannot_be_written_is_a_warning(self):
        self.train("run", *RUN, "training.steps=1")
        (self.folder / "run2" / "operations.json").mkdir(parents=True)
        result = self.train("run2", *RUN, "observe.trace=3:6")
        self.assertIn("the run continues without this trace", result.err)
        self.assertIn("trace_failed", self.events("run2"))
        self.assertEqual(self.summary("run2")["status"], "finished")

    def test_a_damaged_table(self):
        self.train("run", *RUN, "observe.trace=3")
        path = self.folder / "run" / "operations.json"
        whole = path.read_text(encoding="utf-8")
        for text, what in ((whole[:100], "operations.json:"), ("[]", "is not a table of operations"),
                           ('{"brim_operations": 2, "operations": []}', "is not a table of operations")):
            path.write_text(text, encoding="utf-8")
            self.assert_error(self.brim("trace", "run", "--top", status=LOAD), what)
        table = json.loads(whole)
        table["device"] = "\x1b[2Jx"
        table["operations"] = [{"op": "\x1b[31m", "seconds": "x", "runs": None}, 7]
        path.write_text(json.dumps(table), encoding="utf-8")
        out = self.brim("trace", "run", "--top", status=DONE).out
        self.assertNotIn("\x1b", out)
        path.write_bytes(b" " * (16 << 20) + b"  ")
        self.assert_error(self.brim("trace", "run", "--top", status=LOAD), "is larger than 16 MiB")


main()
