"""Tests brim report, and the report.html that a run writes: a self-contained page with the figures of the run's
files."""

import base64
import collections
import hashlib
import html.parser
import json
import math
import os
import pathlib
import random
import re
import signal
import statistics
import xml.etree.ElementTree as xml

from support import ENDLESS, FAILED, INTERRUPTED, LOAD, NO_FIT, SMALL, USAGE, Case, main, plain, some_of

RUN = [*SMALL, "training.epochs=3", "dataset.validation_fraction=0.25", "observe.log_every_steps=1"]
VOID = {"meta", "br", "link", "img", "input"}  # HTML elements without an end tag
HOSTILE = "<script>alert(\"x\")</script>&amp; <b onclick='y'>"


# The times of a traced step in the form of operations.json.
TRACED = {"brim_operations": 1, "steps": [3, 4], "backend": "cpu", "device": "one", "measured_by": "clock reads",
          "trace": "trace-3-4.json.gz", "step_seconds": 0.01, "covered": 0.98,
          "operations": [{"op": "linear", "name": "fc1", "phase": "forward", "shape": "", "runs": 2, "seconds": 0.006,
                          "predicted_seconds": 0.005, "guessed": False, "least_seconds": 0.002},
                         {"op": "relu", "name": "relu", "phase": "forward", "shape": "", "runs": 2, "seconds": 0.0008,
                          "predicted_seconds": 0.001, "guessed": True, "least_seconds": 0},
                         {"op": "linear", "name": "fc2", "phase": "forward", "shape": "", "runs": 2, "seconds": 0.003,
                          "predicted_seconds": 0.003, "guessed": False, "least_seconds": 0.001}]}


class Page(html.parser.HTMLParser):
    """Parses the page as a browser would; wrongly nested elements are an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links = [], set(), []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open, tag)
        self.open.pop()


def text_of(element):
    return "".join(element.itertext()).strip()


class Reports(Case):
    def report(self, *runs, name="out.html"):
        """Returns the page, which must also be valid XML."""
        self.brim("report", *runs, "-o", name, "--force")
        return self.page(name)

    def page(self, *parts):
        text = self.read(*parts)
        page = Page(text)
        self.assertEqual([link for link in page.links if not link.startswith(("#", "data:image/png;base64,"))], [],
                         "it needs no other file")
        self.assertFalse(page.tags & {"iframe", "object", "embed", "link"}, page.tags)
        self.assertEqual("script" in page.tags, 'data-every="' in text, "only a page that follows its run has a script")
        policy, = re.findall(r'Content-Security-Policy" content="([^"]*)"', text) or ["none: several runs"]
        self.assertEqual("script" in page.tags, "script-src" in policy, policy)
        self.assertNotIn("url(", text)
        self.assertNotIn("@import", text)
        return xml.fromstring(text)

    def section(self, page, heading):
        return next((s for s in page.iter("section") if text_of(s.find("h2")) == heading), None)

    def table(self, element):
        """Returns the rows of the first table, as dictionaries."""
        head, *rows = [[text_of(cell) for cell in row] for row in element.find(".//table").iter("tr")]
        return [dict(zip(head, row)) for row in rows]

    def edit(self, run, name, change):
        path = self.folder / run / name
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))


class OfARun(Reports):
    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("run", *RUN), "run")

    def test_a_run_leaves_its_report(self):
        page = self.page("run/report.html")
        self.assertEqual(text_of(page.find(".//h1")), "run finished")
        self.assertEqual([text_of(h) for h in page.iter("h2")],
                         ["Results", "Curves", "What happened", "Epochs", "Confusion matrix", "Classes",
                          "Most wrong", "Layers", "Memory", "Environment", "Configuration"])
        jumps = [(a.get("href"), text_of(a)) for a in page.find(".//nav").iter("a")]
        self.assertEqual(jumps, [("#" + s.get("id"), text_of(s.find("h2"))) for s in page.iter("section")])
        self.brim("report", "run", "-o", "again.html")
        self.assertEqual(self.read("again.html"), self.read("run/report.html"), "the same files, the same bytes")
        self.brim("report", "run")
        self.assertEqual(self.read("report.html"), self.read("again.html"), "report.html if nothing is said")

    @plain
    def test_without_a_report(self):
        self.train("quiet", *RUN, "observe.report=false")
        self.assertFalse((self.folder / "quiet/report.html").exists())

    @plain
    def test_figures_are_those_of_the_summary(self):
        page, summary = self.report("run"), self.summary("run")
        rows = {row[""]: row for row in self.table(self.section(page, "Results"))}
        for key, name, form in (("loss", "loss", "{:.4f}"), ("accuracy", "accuracy", "{:.2%}"),
                                ("accuracy_top5", "top-5 accuracy", "{:.2%}"), ("f1", "F1", "{:.4f}")):
            for split in ("validation", "test"):
                self.assertEqual(rows[name][split].replace(" ", ""), form.format(summary[f"{split}_{key}"]), key)
        self.assertEqual(rows["loss"]["training"], f"{summary['train_loss']:.4f}")
        self.assertNotIn("-", rows["loss"].values())
        cards = {text_of(card.find("span")): text_of(card.find("b")) for card in page.iterfind(".//div[@class='card']")}
        self.assertEqual(cards["test loss"], f"{summary['test_loss']:.4f}")
        self.assertEqual(cards["memory, as planned"], f"{summary['device_peak_bytes'] / 1024:.1f} KiB")
        self.assertIn(summary["device"], text_of(page.find(".//p[@class='what']")))
        self.assertIn(summary["device_name"], text_of(page.find(".//p[@class='what']")))

    @plain
    def test_epochs_are_the_records_put_together(self):
        rows = self.table(self.section(self.report("run"), "Epochs"))
        records = self.records("run")
        self.assertEqual([row["epoch"] for row in rows], ["1", "2", "3"])
        for row, step in zip(rows, (2, 4, 6)):
            train = [r for r in records if r["split"] == "train" and step - 2 < r["step"] <= step]
            judged = next(r for r in records if r["split"] == "validation" and r["step"] == step)
            samples = sum(r["samples"] for r in train)
            self.assertEqual(samples, 192)
            self.assertEqual(row["training loss"], f"{sum(r['loss'] * r['samples'] for r in train) / samples:.4f}")
            self.assertEqual(row["validation loss"], f"{judged['loss']:.4f}")
            self.assertEqual(row["seconds"], f"{sum(r['seconds'] for r in train):.2f}")
            self.assertEqual(row["evaluation seconds"], f"{judged['seconds']:.2f}")
        whole = [sum(r["seconds"] for r in records if r["split"] == "train" and r["step"] in steps)
                 for steps in ((1, 2), (3, 4), (5, 6))]
        compared, = self.brim("compare", "--json", "run").json["runs"]
        self.assertAlmostEqual(compared["epoch_seconds"], sum(whole) / 3)

    @plain
    def test_classes_and_confusion(self):
        page, summary = self.report("run"), self.summary("run")
        matrix = page.find(".//table[@class='confusion']")
        rows = [[text_of(cell) for cell in row] for row in matrix.iter("tr")][1:]
        self.assertEqual([row[1:] for row in rows],
                         [[str(n) if n else "" for n in row] for row in summary["test_confusion"]])
        for row, expected in zip(self.table(self.section(page, "Classes")), summary["test_classes"]):
            self.assertEqual(row, {"class": expected["class"], "precision": f"{expected['precision']:.4f}",
                                   "recall": f"{expected['recall']:.4f}", "F1": f"{expected['f1']:.4f}",
                                   "samples": str(expected["support"])})

    @plain
    def test_curves_have_a_point_for_each_record(self):
        charts = {chart.get("aria-label"): chart for chart in self.report("run").iterfind(".//svg[@class='chart']")}
        self.assertEqual(list(charts), ["loss", "accuracy", "top-5 accuracy", "F1", "learning rate", "samples/s"])
        paths = {path.get("class"): path.get("d") for path in charts["loss"].iter("path")}
        self.assertEqual(len(re.findall("[ML]", paths["faint color0"])), 6)
        self.assertEqual(len(re.findall("[ML]", paths["curve color1"])), 3)

    @plain
    def test_memory_events_and_inputs(self):
        page, plan = self.report("run"), self.json("run", "plan.json")
        memory = self.section(page, "Memory")
        bar = {text_of(rect.find("title")): float(rect.get("width"))
               for rect in memory.find(".//svg[@class='bar']").iter("rect")}
        self.assertEqual(set(bar), {name for name, size in plan["classes"].items() if size})
        self.assertAlmostEqual(sum(bar.values()), 1000, delta=0.1)
        measured = {row[""]: row for row in self.table(memory)}
        self.assertEqual(measured["memory of the device, at the peak"]["difference"], "exactly")
        events = [row["event"] for row in self.table(self.section(page, "What happened"))]
        self.assertEqual(events, ["started", "finished"])
        overrides, config = (text_of(pre) for pre in self.section(page, "Configuration").iter("pre"))
        self.assertEqual(config, self.read("run/config.yaml").strip())
        self.assertEqual(overrides, self.read("run/overrides.yaml").strip())

    def test_decisions_and_recoveries_are_shown(self):
        result = self.train("redone", *RUN, env={"BRIM_FAULT": "step:2:begin"})
        self.assertIn("recovery", result.err)
        section = self.section(self.page("redone/report.html"), "What happened")
        recorded = {event["event"]: event for event in self.records("redone", "events.jsonl")}
        reported = {row["event"]: row for row in self.table(section)}
        self.assertEqual(reported["recovered"]["step"], "1")
        self.assertIn(recorded["recovered"]["detail"], reported["recovered"][""])
        self.assertIn(recorded["decision"]["choice"], reported["out of memory"][""])
        self.assertIn(recorded["decision"]["reason"], reported["out of memory"][""])
        self.assertIn("Memory ran out once", text_of(section.find("p")))


    def test_times_by_operation(self):
        (self.folder / "run/operations.json").write_text(json.dumps(TRACED))
        section = self.section(self.report("run"), "Time by operation")
        kinds = self.table(section)
        self.assertEqual([row["operation"] for row in kinds], ["linear", "relu"])
        self.assertEqual([(row["measured, ms"], row["%"], row["predicted, ms"], row["least, ms"]) for row in kinds],
                         [("9.00", "90.0", "8.00", "3.00"), ("0.800", "8.0", "~1.00", "")])
        nodes = self.table(section.find("details"))
        self.assertEqual([row["operation"] for row in nodes], ["linear 'fc1'", "linear 'fc2'", "relu 'relu'"])
        self.assertIn("trace-3-4.json.gz", text_of(section))

    @plain
    def test_the_plan_is_drawn_from_the_run_s_folder(self):
        section, plan = self.section(self.report("run"), "Memory"), self.json("run", "plan.json")
        picture = section.find(".//svg[@class='plan']")
        self.assertIn("peak", text_of(picture.find("./text[@class='peak-text']")))
        titles = [text_of(title) for title in picture.iter("title")]
        buffers = self.json("run", "buffers.json")
        self.assertEqual(buffers["peak_bytes"], plan["peak_bytes"])
        self.assertGreaterEqual(max(buffers["alive"]) + buffers["persistent_bytes"], plan["lower_bound_bytes"])
        self.assertTrue(any("linear" in title for title in titles), titles)
        self.edit("run", "buffers.json", lambda data: data["pieces"][0].__setitem__(3, 10**6))
        self.assertIsNone(self.section(self.report("run"), "Memory").find(".//svg[@class='plan']"))

    @plain
    def test_a_page_of_twelve_blocks_is_not_large(self):
        self.train("blocks", "model=vit", "model.depth=12", "model.width=24", "model.heads=2", "backend.threads=1",
                   "dataset=synthetic", "dataset.train_count=64", "dataset.test_count=32", "training.batch_size=16",
                   "training.steps=4", "training.eval_every_steps=1", "memory.timing=false")
        self.assertGreater(self.json("blocks", "buffers.json")["operations"], 200)
        self.assertLess((self.folder / "blocks/report.html").stat().st_size, 500 << 10)

    @plain
    def test_the_environment_is_described(self):
        rows = {text_of(row.find("th")): text_of(row.find("td"))
                for row in self.section(self.report("run"), "Environment").iter("tr")}
        here, = self.records("run", "environment.jsonl")
        self.assertEqual(rows["host"], here["host"])
        self.assertIn("run.dir=run", rows["command"])
        self.assertTrue(rows["brim"].startswith(here["version"]))
        self.assertEqual((here["steps"], here["step"], here["micro_batch"]), (6, 0, 128))
        self.assertEqual(here["planned_peak_bytes"], self.json("run", "plan.json")["peak_bytes"])

    def test_a_run_of_a_repository_names_its_commit(self):
        (self.folder / ".git/refs/heads/a").mkdir(parents=True)
        (self.folder / ".git/HEAD").write_text("ref: refs/heads/a/b\n")
        for run, file, text in (("packed", ".git/packed-refs", "# pack\n5678abcd refs/heads/a/b\n"),
                                ("loose", ".git/refs/heads/a/b", "1234abcd\n")):
            (self.folder / file).write_text(text)
            self.train(run, *SMALL, "training.steps=1")
            here, = self.records(run, "environment.jsonl")
            self.assertEqual((here["branch"], here["commit"]),
                             ("a/b", "5678abcd" if run == "packed" else "1234abcd"))


class WhileItGoesOn(Reports):
    """A run rewrites its page while it trains."""

    FAST = [*SMALL, "observe.report_seconds=0.1", "observe.log_every_steps=1"]

    def status(self, run="run"):
        found = re.search(r'class="status[^"]*">([^<]*)<', self.read(run, "report.html"))
        return found and found[1]

    def written(self):
        try:
            found = re.search(r'data-written="([^"]*)"', self.read("run/report.html"))
        except FileNotFoundError:
            return None
        return found and float(found[1])

    def begin(self, *words):
        """Starts a run that trains until it is ended, and waits until it has written a page."""
        process = self.hold("run", *self.FAST, *words)
        self.until(self.written, process)
        return process

    def children(self, process):
        return (pathlib.Path("/proc") / str(process.pid) / f"task/{process.pid}/children").read_text().split()

    def test_the_page_follows_the_run(self):
        process = self.begin()
        first = self.written()
        page = self.page("run/report.html")
        self.assertEqual(text_of(page.find(".//h1")), "run running")
        script = text_of(page.find(".//script"))
        policy = page.find(".//meta[@http-equiv='Content-Security-Policy']").get("content")
        digest = base64.b64encode(hashlib.sha256(page.find(".//script").text.encode()).digest()).decode()
        self.assertIn(f"script-src 'sha256-{digest}'", policy, "the policy allows exactly this script")
        self.assertIn("location.reload()", script)
        self.assertEqual(page.find(".//noscript/meta").get("content"), "1")
        self.until(lambda: (self.written() or first) > first, process)
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        page = self.page("run/report.html")
        self.assertEqual(text_of(page.find(".//h1")), "run interrupted")
        self.assertIsNone(page.find(".//script"))
        self.assertEqual([path.name for path in (self.folder / "run").iterdir() if path.suffix == ".tmp"], [])

    def test_a_killed_run_leaves_a_page_that_says_so(self):
        process = self.begin()
        process.kill()
        self.finish(process)
        self.until(lambda: self.status() == "stopped")
        page = self.page("run/report.html")
        self.assertIsNone(page.find(".//script"))
        self.assertIn("The run stopped without recording its end", text_of(page.find(".//p[@class='notice bad']")))
        last = self.table(self.section(page, "What happened"))[-1]
        self.assertEqual(last["event"], "stopped")
        self.assertEqual(text_of(self.report("run").find(".//h1")), "run stopped")

    @plain
    def test_it_is_written_by_a_process_of_low_priority_that_ends_with_the_run(self):
        process = self.begin()
        child, = self.children(process)
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, int(child)), 19)
        process.kill()
        self.finish(process)
        self.until(lambda: not pathlib.Path(f"/proc/{child}").exists())

    @plain
    def test_no_pages_before_the_end(self):
        for words in (["observe.report_seconds=0"], ["observe.report=false"]):
            run = "run" + words[0][-1]
            process = self.hold(run, *self.FAST, *words)
            self.until(lambda: len(self.records(run)) > 1, process)
            self.assertEqual(self.children(process), [])

    def test_a_resumed_run_goes_on_although_it_has_an_older_summary(self):
        process = self.begin()
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.assertEqual(self.status(), "interrupted")
        process = self.start("train", "--resume", "run")
        self.until(lambda: self.status() == "running", process)
        process.kill()
        self.finish(process)
        self.until(lambda: self.status() == "stopped")
        self.assertEqual(self.summary("run")["status"], "interrupted", "of the process before")

    def test_following_from_outside(self):
        self.train("ended", *self.FAST, "training.steps=2")
        self.brim("report", "ended", "--every", "0.2", "-o", "page.html")
        self.assertEqual(text_of(self.page("page.html").find(".//h1")), "ended finished")
        process = self.begin("observe.report_seconds=0.3")
        follower = self.start("report", "run", "--every", "0.2", "-o", "outside.html")
        self.until(lambda: (self.folder / "outside.html").exists(), follower)
        self.assertEqual(text_of(self.page("outside.html").find(".//h1")), "run running")
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.finish(follower, 0)
        self.assertEqual(text_of(self.page("outside.html").find(".//h1")), "run interrupted")

    @plain
    def test_errors(self):
        self.train("run", *SMALL, "training.steps=1", "observe.report=false")
        for seconds in ("0", "-1", "soon", "1e9", "nan", ""):
            self.assert_error(self.brim("report", "run", f"--every={seconds}", status=USAGE), "--every takes seconds")
        self.assert_error(self.brim("report", "run", "run", "--every=1", status=USAGE), "--every follows one run")
        self.assert_error(self.brim("report", "nothing", "--every=1", status=LOAD), "there is no run 'nothing'")


class OfARunWithAHistory(Reports):
    """The run waited for its device, ran out of memory once, and was resumed twice."""

    ONE = [*SMALL, "backend=cpu", "backend.devices=1", "backend.memory_mb=2", "wait_for_gpu=true",
           "gpu_check_interval_seconds=0.05"]

    def test_someone_who_was_not_there_can_say_what_happened(self):
        holder = self.hold("holder", *self.ONE, "training.batch_size=256", "model.hidden=[512]")
        words = [*self.ONE, *ENDLESS, "training.checkpoint_every_steps=20", "model.hidden=[256]"]
        process = self.start("train", "run.dir=run", *words, env={"BRIM_FAULT": "step:5:update"})
        self.until(lambda: '"claimed": null' in self.brim("devices", "--json", "backend=cpu", "backend.devices=1",
                                                          "backend.memory_mb=2").out, process)
        holder.kill()
        self.until(lambda: self.steps("run"), process)
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        interrupted = self.steps("run")[-1]
        process = self.start("train", "--resume", "run")
        self.until(lambda: self.steps("run")[-1] > interrupted, process)
        process.kill()
        self.finish(process)
        resumed = self.steps("run")[-1]
        process = self.start("train", "--resume", "run")
        self.until(lambda: self.steps("run")[-1] > resumed, process)
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.assert_told(self.section(self.page("run/report.html"), "What happened"))

    def assert_told(self, section):
        rows = self.table(section)
        self.assertEqual([row["event"] for row in rows],
                         ["waiting", "got a device", "started", "out of memory", "went back", "recovered",
                          "interrupted", "resumed", "stopped", "resumed", "interrupted"])
        details = [row[""] for row in rows]
        self.assertRegex(details[0], r"^for a device with .* KiB: 1st in line")
        self.assertRegex(details[1], r"^cpu:0, after .* s in the queue$")
        self.assertRegex(details[2], r"^on .*, cpu:0, micro-batch 128, .* KiB planned$")
        self.assertEqual(details[3:5], ["step 5: update failed (injected by BRIM_FAULT); what brim did: light cleanup, "
                                        "1 of 3", "back to step 0, from where brim repeats the steps"])
        self.assertRegex(details[5], r"^step 5 can be repeated, .* s after it failed$")
        self.assertIn("with a checkpoint of this step", details[6])
        self.assertEqual(rows[6]["step"], rows[7]["step"])
        self.assertIn("was killed or crashed", details[8])
        told = text_of(section.find("p"))
        for part in ("in the queue for a device", "The run was resumed twice.",
                     "It stopped once without recording its end.", "Memory ran out once"):
            self.assertIn(part, told)
        picture = section.find(".//svg[@class='time']")
        self.assertEqual(collections.Counter(rect.get("class") for rect in picture.iter("rect")),
                         {"t-work": 3, "t-wait": 1, "t-redo": 1})


class OfFoldersAsTheyAre(Reports):
    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("run", *RUN), "run")

    @plain
    def test_a_run_that_failed_says_why(self):
        self.train("failed", *RUN, "optimizer.lr=1e30", "optimizer=sgd", status=FAILED)
        page = self.page("failed/report.html")
        self.assertEqual(text_of(page.find(".//h1")), "failed failed")
        self.assertEqual(text_of(page.find(".//pre[@class='error']")), self.summary("failed")["error"].strip())

    def test_a_resumed_run(self):
        (self.folder / "run/summary.json").unlink()
        page = self.report("run")
        self.assertEqual(text_of(page.find(".//h1")), "run unfinished")
        last = [r for r in self.records("run") if r["split"] == "test"][-1]
        rows = {row[""]: row for row in self.table(self.section(page, "Results"))}
        self.assertEqual(rows["loss"]["test"], f"{last['loss']:.4f}")
        self.assertIsNone(self.section(page, "Classes"))

    def test_the_smallest_run(self):
        for path in (self.folder / "run").iterdir():
            if path.is_file() and path.name != "config.yaml":
                path.unlink()
        page = self.report("run")
        self.assertEqual([text_of(h) for h in page.iter("h2")], ["Configuration"])

    def test_damaged_files_are_named_and_left_out(self):
        (self.folder / "run/plan.json").write_text('{"classes": ')
        (self.folder / "run/plugins.json").write_text("[]")
        page = self.report("run")
        notes = text_of(page.find(".//pre[@class='error']"))
        self.assertIn("plan.json is not JSON: line 1: ", notes)
        self.assertIn("plugins.json is not a JSON object", notes)
        self.assertIsNotNone(self.section(page, "Results"))

    def test_damaged_lines_never_break_a_page(self):
        """The test changes, deletes and duplicates bytes of the run's files, with a fixed seed."""
        chance = random.Random(7)
        (self.folder / "run/operations.json").write_text(json.dumps(TRACED))
        for name in ("metrics.jsonl", "events.jsonl", "summary.json", "plan.json", "buffers.json", "environment.jsonl",
                     "operations.json"):
            path = self.folder / "run" / name
            whole = path.read_bytes()
            for _ in some_of(range(12), 4):
                data = bytearray(whole)
                for _ in range(chance.randrange(1, 30)):
                    at, length = chance.randrange(len(data)), chance.randrange(8)
                    data[at:at + chance.choice((0, length))] = chance.choice(
                        (bytes(chance.randrange(256) for _ in range(length)), b"<x>", b"1e999", b"-1", b"\0", b"[["))
                path.write_bytes(data)
                self.report("run")
            path.write_bytes(whole)

    def test_nothing_of_a_file_is_markup(self):
        def poison(value):
            if isinstance(value, dict):
                return {key: poison(item) for key, item in value.items()}
            if isinstance(value, list):
                return [poison(item) for item in value]
            return HOSTILE if isinstance(value, str) else value
        (self.folder / "run/operations.json").write_text(json.dumps(TRACED))
        for name in ("summary.json", "plan.json", "plugins.json", "buffers.json", "operations.json"):
            self.edit("run", name, lambda data: data.update(poison(data)))
        self.edit("run", "plan.json", lambda data: data["classes"].update({HOSTILE: 5}))
        for name in ("metrics.jsonl", "events.jsonl"):
            records = self.records("run", name)
            for record in records:
                record.update({HOSTILE: 1} if name == "metrics.jsonl" else {"event": HOSTILE, "detail": HOSTILE})
            (self.folder / "run" / name).write_text("".join(json.dumps(r) + "\n" for r in records))
        (self.folder / "run/environment.jsonl").write_text(
            "".join(json.dumps(poison(r)) + "\n" for r in self.records("run", "environment.jsonl")))
        (self.folder / "run/overrides.yaml").write_text(f"- '{HOSTILE}'\n")
        (self.folder / "run").rename(self.folder / "<i>run")
        page = self.report("<i>run")
        self.assertEqual(text_of(page.find(".//h1")), f"<i>run {HOSTILE[:31]}")
        classes = [row["class"] for row in self.table(self.section(page, "Classes"))]
        self.assertEqual(classes, [HOSTILE] * 10)
        self.assertIn(HOSTILE, [row["event"] for row in self.table(self.section(page, "What happened"))])
        self.assertEqual({text_of(row.find("td")) for row in self.section(page, "Environment").iter("tr")} & {HOSTILE},
                         {HOSTILE})
        self.assertIn(HOSTILE, text_of(self.section(page, "Time by operation")))
        self.assertIn(f"{HOSTILE}, of {HOSTILE}", text_of(self.section(page, "Memory")))
        self.assertIn(HOSTILE, [chart.get("aria-label") for chart in page.iterfind(".//svg[@class='chart']")])

    def test_bytes_that_are_not_text(self):
        (self.folder / "run/overrides.yaml").write_bytes(b"- 'a\xff\xfe\x00'\n")
        self.assertIn("- 'a\ufffd\ufffd", text_of(self.section(self.report("run"), "Configuration")))

    def set_classes(self, count):
        def change(summary):
            names = [f"class <{i}>" for i in range(count)]
            summary["test_confusion"] = [[9 * (i == k) + 3 * (k == (i + 1) % count) for k in range(count)]
                                         for i in range(count)]
            summary["test_classes"] = [{"class": name, "precision": 0.75, "recall": 0.75, "f1": 0.75, "support": 12}
                                       for name in names]
        self.edit("run", "summary.json", change)

    @plain
    def test_many_classes_are_squares(self):
        self.set_classes(200)
        section = self.section(self.report("run"), "Confusion matrix")
        squares = {path.get("class"): path.get("d") for path in section.find(".//svg").iter("path")}
        self.assertEqual({name: d.count("M") for name, d in squares.items()},
                         {"ground": 1, "right8": 200, "wrong3": 200})
        self.assertIn("M199 199h1v1h-1z", squares["right8"])
        self.assertIn("M0 199h1v1h-1z", squares["wrong3"])
        self.assertEqual([text.text for text in section.iter("text")][2], "class <1>")

    def test_very_many_classes_are_pairs(self):
        self.set_classes(201)
        section = self.section(self.report("run"), "Confusion matrix")
        self.assertIsNone(section.find(".//svg"))
        first, *others = self.table(section)
        self.assertEqual(first, {"label": "class <0>", "predicted as": "class <1>", "samples": "3",
                                 "share of the label's samples": "25.0 %"})
        self.assertEqual(len(others), 11)

    @plain
    def test_unknown_figures_are_shown(self):
        with open(self.folder / "run/metrics.jsonl", "w", encoding="utf-8") as file:
            for step in (1, 2, 3):
                file.write(json.dumps({"step": step, "epoch": step, "split": "train", "loss": 1 / step,
                                       "tokens_per_second": 1e5}) + "\n")
                file.write(json.dumps({"step": step, "epoch": step, "split": "validation", "loss": 2 / step,
                                       "perplexity": 7.5}) + "\n")
        def change(summary):
            for key in [key for key in summary if "accuracy" in key or "f1" in key or key.startswith("test_")]:
                del summary[key]
            summary["validation_perplexity"] = 7.5
        self.edit("run", "summary.json", change)
        page = self.report("run")
        charts = [chart.get("aria-label") for chart in page.iterfind(".//svg[@class='chart']")]
        self.assertEqual(charts, ["loss", "perplexity", "tokens/s"])
        rows = {row[""]: row for row in self.table(self.section(page, "Results"))}
        self.assertEqual(rows["perplexity"]["validation"], "7.5")
        epochs = self.table(self.section(page, "Epochs"))
        self.assertEqual([row["validation perplexity"] for row in epochs], ["7.5"] * 3)
        self.assertIsNone(self.section(page, "Confusion matrix"))

    def test_a_report_that_cannot_be_written_is_not_a_failure(self):
        (self.folder / "full/report.html").mkdir(parents=True)
        result = self.train("full", *RUN)
        self.assertIn("warning: cannot write report.html of the run: cannot replace 'full/report.html'", result.err)
        self.assertEqual(self.summary("full")["status"], "finished")

    @plain
    def test_errors(self):
        self.assert_error(self.brim("report", status=USAGE), "write brim report RUN...")
        self.assert_error(self.brim("report", "nothing", status=LOAD), "there is no run 'nothing': No such file")
        self.assert_error(self.brim("report", "run", "-o", "no/such/page.html", status=None), "no/such")
        self.assert_error(self.brim("report", "run", "-o", "data.csv", status=USAGE), "-o data.csv",
                          "must end in .html")


FEDERATION = ["model=mlp", "model.hidden=[16]", "dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=480",
              "dataset.test_count=64", "dataset.classes=4", "dataset.noise=0.5", "total_clients=12",
              "clients_per_round=5", "rounds=6", "partition=dirichlet", "partition.alpha=0.3", "optimizer.lr=0.1",
              "federate.eval_every_rounds=2", "memory.timing=false", "backend.threads=2"]


class OfAFederation(Reports):
    def federate(self, run, *words):
        self.brim("federate", f"run.dir={run}", *FEDERATION, *words)

    def partition(self, run):
        """Makes a partition: samples by client, and by client and class."""
        rows = [tuple(map(int, line.split(","))) for line in self.read(run, "partition.csv").splitlines()[1:]]
        return collections.Counter(client for client, _, _ in rows), collections.Counter(
            (client, number) for client, _, number in rows)

    def write_rounds(self, run, rounds):
        """Writes participants.jsonl: the clients that trained in each round, and those whose update did not arrive."""
        with open(self.folder / run / "participants.jsonl", "w", encoding="utf-8") as file:
            for number, clients, lost in rounds:
                line = {"round": number, "client": list(clients), "samples": [40] * len(clients),
                        "loss": [0.5] * len(clients), "arrived": [c not in lost for c in clients]}
                file.write(json.dumps(line) + "\n")

    def squares(self, page):
        """Returns the coloured squares of the picture as (column, row), and the numbers of columns and rows."""
        picture = self.section(page, "Clients").find(".//svg[@class='map']")
        paths = {path.get("class"): path.get("d") for path in picture.iter("path")}
        columns, rows = map(int, re.match(r"M0 0h(\d+)v(\d+)", paths.pop("ground")).groups())
        return {(int(x), int(y)): shade for shade, d in paths.items()
                for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", d)}, columns, rows

    def charts(self, page):
        return {chart.get("aria-label"): chart for chart in page.iterfind(".//svg[@class='chart']")}

    def test_steps_are_rounds(self):
        self.federate("run")
        page = self.page("run/report.html")
        self.assertEqual([text_of(h) for h in page.iter("h2")],
                         ["Results", "Curves", "What happened", "Accuracy reached", "Rounds", "Clients",
                          "Confusion matrix", "Classes",
                          "Most wrong", "Layers", "Memory", "Environment", "Configuration"])
        self.assertTrue(text_of(page.find(".//p[@class='what']")).endswith(", 6 rounds"))
        rows = self.table(self.section(page, "Rounds"))
        self.assertEqual([row["round"] for row in rows], [str(n) for n in range(1, 7)])
        self.assertNotIn("epoch", rows[0])
        for chart in self.charts(page).values():
            words = [text.text for text in chart.iter("text")]
            self.assertTrue({"round", "client"} & set(words) and "step" not in words, words)
        self.assertEqual(list(self.charts(page))[:2], ["loss", "accuracy"])
        self.assertNotIn("clients", self.charts(page))
        self.federate("other", "seed=2")
        pair = self.report("run", "other")
        self.assertEqual(self.table(self.section(pair, "Figures"))[0]["rounds"], "6")

    @plain
    def test_accuracy_reached_is_that_of_the_records(self):
        self.federate("run", "rounds=12", "federate.eval_every_rounds=1")
        records = self.records("run")
        tests, trains = ([r for r in records if r["split"] == split] for split in ("test", "train"))
        rows = {row["test accuracy"]: row for row in self.table(self.section(self.report("run"), "Accuracy reached"))}
        self.assertEqual(list(rows), ["50 %", "80 %", "90 %"])
        reached = 0
        for wanted in 0.5, 0.8, 0.9:
            first = next((r["step"] for r in tests if r["accuracy"] >= wanted), None)
            row = rows[f"{wanted:.0%}".replace("%", " %")]
            self.assertEqual(row["round"], str(first or "not reached"))
            samples = sum(r["samples"] for r in trains if first and r["step"] <= first)
            self.assertEqual(row["training samples"], str(samples) if first else "-")
            reached += first is not None
        self.assertGreater(reached, 0)
        self.federate("poor", "rounds=1", "optimizer.lr=1e-6")
        good, poor = self.table(self.section(self.report("run", "poor"), "Accuracy reached"))
        self.assertEqual(good["best accuracy"].replace(" ", ""), f"{max(r['accuracy'] for r in tests):.2%}")
        for wanted, row in rows.items():
            self.assertEqual(good[wanted].split(" ")[0], row["round"] if row["round"] != "not reached" else "-")
            self.assertEqual(poor[wanted], "-")

    def test_the_partition_is_drawn(self):
        self.federate("run")
        page = self.report("run")
        sizes, counts = self.partition("run")
        squares, columns, rows = self.squares(page)
        self.assertEqual((columns, rows), (12, 4))
        self.assertEqual(set(squares), set(counts))
        most = max(counts, key=counts.get)
        self.assertEqual(squares[most], "right10")
        for place, count in counts.items():
            self.assertEqual(squares[place], f"right{math.ceil(10 * math.sqrt(count / counts[most]) - 1e-9)}")
        row = self.table(self.section(page, "Clients"))[0]
        self.assertEqual((row["least"], row["mean"], row["most"]),
                         (str(min(sizes.values())), "40.00", str(max(sizes.values()))))
        bars = self.charts(page)["samples of each client"].find(".//path[@class='bars color0']").get("d")
        self.assertEqual(bars.count("M"), 12)

    @plain
    def test_of_many_clients_some_are_drawn(self):
        self.federate("run", "total_clients=240", "partition=shards", "rounds=1", "partition.shards=2")
        self.write_rounds("run", [(1, range(5), []), (2, range(4), [])])
        page = self.report("run")
        _, counts = self.partition("run")
        squares, columns, rows = self.squares(page)
        self.assertEqual((columns, rows), (200, 4))
        drawn = [i * 240 // 200 for i in range(200)]
        self.assertEqual({(drawn[x], y) for x, y in squares}, {pair for pair in counts if pair[0] in set(drawn)})
        charts = self.charts(page)
        self.assertNotIn("clients by their samples", charts, "all have two")
        bars = charts["clients by the rounds in which they trained"].find(".//path[@class='bars color2']").get("d")
        self.assertEqual(bars.count("M"), 3, "none, one and two rounds")

    def test_participation(self):
        self.federate("run")
        arrived = collections.Counter(client for line in self.records("run", "participants.jsonl")
                                      for client, there in zip(line["client"], line["arrived"]) if there)
        text = text_of(self.section(self.page("run/report.html"), "Clients"))
        self.assertIn(f"12 clients, of which {len(arrived)} trained at least once; "
                      "the clients of a round together had", text)
        (self.folder / "run/participants.jsonl").unlink()
        self.assertNotIn("trained at least once", text_of(self.section(self.report("run"), "Clients")))
        self.write_rounds("run", [(1, [0, 1, 2, 3, 4], []), (2, [4, 5, 6, 7, 8], [8]),
                                  (2, [4, 5, 6, 7, 8], [8]),  # this round was repeated after a resume
                                  (3, [4, 0, 9, 1, 77], [])])  # 77 is an unknown client
        page = self.report("run")
        section = self.section(page, "Clients")
        classes = collections.defaultdict(set)
        for client, number in self.partition("run")[1]:
            classes[client].add(number)
        share = statistics.mean(len(set().union(*(classes[c] for c in clients))) / 4
                                for clients in ([0, 1, 2, 3, 4], [4, 5, 6, 7], [4, 0, 9, 1]))
        self.assertIn("12 clients, of which 9 trained at least once; 1 update did not arrive; the clients of a round "
                      f"together had {100 * share:.1f} % of the classes (mean).", text_of(section))
        _, row = self.table(section)
        self.assertEqual((row["per client"], row["least"], row["mean"], row["most"]),
                         ("rounds in which it trained", "0", f"{13 / 12:.2f}", "3"))
        bars = self.charts(page)["rounds in which each client trained"].find(".//path[@class='bars color2']").get("d")
        self.assertEqual(bars.count("M"), 9)

    @plain
    def test_memory_by_round(self):
        self.federate("run", "parallel_clients=2")
        page, summary = self.report("run"), self.summary("run")
        trained = [r for r in self.records("run") if r["split"] == "train"]
        for record in trained:
            self.assertEqual(record["device_bytes"], summary["planned_peak_bytes"])
            self.assertLessEqual(record["rss_bytes"], summary["rss_peak_bytes"])
            self.assertGreater(record["rss_bytes"], record["device_bytes"])
        chart = next(self.section(page, "Memory").iterfind(".//svg[@class='chart']"))
        curves = [path.get("d") for path in chart.iter("path") if path.get("class").startswith("curve")]
        self.assertEqual([len(re.findall("[ML]", d)) for d in curves], [6, 6, 6])

    def test_damaged_files_never_break_a_page(self):
        self.federate("run")
        self.write_rounds("run", [(n, range(n, n + 5), [n]) for n in range(1, 7)])
        chance = random.Random(11)
        for name in "partition.csv", "participants.jsonl", "metrics.jsonl":
            path = self.folder / "run" / name
            whole = path.read_bytes()
            for _ in some_of(range(12), 4):
                data = bytearray(whole)
                for _ in range(chance.randrange(1, 30)):
                    at, length = chance.randrange(len(data)), chance.randrange(8)
                    data[at:at + chance.choice((0, length))] = chance.choice(
                        (b"\n", b",", b"999999999999999999999", b"-1", b"\0", b"1e999", b"[[", b"0,1,99999\n"))
                path.write_bytes(data)
                self.report("run")
            path.write_bytes(whole)
        for name in "partition.csv", "participants.jsonl":
            (self.folder / "run" / name).unlink()
        self.assertIsNone(self.section(self.report("run"), "Clients"))


class OfSeveral(Reports):
    def test_runs_that_differ_in_their_seeds_are_put_together(self):
        self.brim("train", "-m", "run.dir=sweep", *SMALL, "model.hidden=[8],[16]", "seed=1,2,3")
        page = self.report("sweep")
        rows = self.table(self.section(page, "Over seeds"))
        self.assertEqual([(row["group of runs"], row["seeds"]) for row in rows],
                         [("model.hidden=[8]", "3"), ("model.hidden=[16]", "3")])
        for k, row in enumerate(rows):
            summaries = [self.summary(f"sweep/{3 * k + i}") for i in range(3)]
            for column, key, digits, unit in (("test loss", "test_loss", 4, 1), ("acc. %", "test_accuracy", 2, 100)):
                values = [unit * s[key] for s in summaries]
                self.assertEqual(row[column], f"{statistics.mean(values):.{digits}f} \u00b1 "
                                              f"{statistics.stdev(values):.{digits}f}")
        self.assertIsNone(self.section(self.report("sweep/0", "sweep/3"), "Over seeds"))

    @plain
    def test_runs_side_by_side(self):
        self.train("runs/a", *RUN, "optimizer.lr=1e-2")
        self.train("runs/b", *RUN, "model.hidden=[8]")
        page = self.report("runs/a", "runs/b")
        self.assertEqual([text_of(h) for h in page.iter("h2")], ["Figures", "Curves", "Keys that differ"])
        printed = [re.split(r"  +", line.strip()) for line in self.brim("compare", "runs/a", "runs/b").out.splitlines()]
        table = [[text_of(cell) for cell in row] for row in self.section(page, "Figures").iter("tr")]
        self.assertEqual(table, printed[:3], "as brim compare has it")
        keys = {row["key"]: (row["a"], row["b"]) for row in self.table(self.section(page, "Keys that differ"))}
        self.assertEqual(keys, {"model.hidden": ("[16]", "[8]"), "optimizer.lr": ("1e-2", "2e-3")})
        loss = next(page.iterfind(".//svg[@class='chart']"))
        self.assertEqual(sorted(path.get("class") for path in loss.iter("path") if "color" in path.get("class")),
                         ["curve color0", "curve color1", "faint color0", "faint color1"])
        self.brim("report", "runs/a", "runs/b", "-o", "again.html")
        self.assertEqual(self.read("again.html"), self.read("out.html"))

    @plain
    def test_a_sweep_folder_selects_its_runs(self):
        self.brim("train", "-m", "run.dir=sweep", *RUN, "seed=1,2", "memory.limit_mb=200")
        page = self.report("sweep")
        self.assertEqual([row["run"] for row in self.table(self.section(page, "Figures"))], ["sweep/0", "sweep/1"])
        self.page("sweep/1/report.html")


@plain
class Times(Case):
    """Times are not part of the state, but a resumed run reports them all the same."""

    def test_a_window_of_which_an_earlier_process_has_made_a_part(self):
        words = [*SMALL, "training.batch_size=32", "training.epochs=2", "observe.log_every_steps=4",
                 "training.checkpoint_every_steps=3"]
        self.train("whole", *words)
        self.train("run", *words, status=NO_FIT, env={"BRIM_FAULT": "step:7:begin:1+"})
        self.brim("train", "--resume", "run")
        self.assert_same_records("run", "whole")
        for record in self.records("run"):
            self.assertGreater(record["seconds"], 0, record)
            self.assertAlmostEqual(record["samples"] / record["seconds"] / record["samples_per_second"], 1, places=6)
        self.assertEqual([r["samples"] for r in self.records("run") if r["split"] == "train"], [128] * 4)


if __name__ == "__main__":
    main()
