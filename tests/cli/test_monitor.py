"""Tests brim monitor: runs, devices and the queue, as text, JSON and metrics; other hosts through ssh."""

import json
import os
import pathlib
import re
import shutil
import signal

import openmetrics
from support import BINARY, INTERRUPTED, SMALL, Case, main, write
from test_queue import JOB, WAIT, devices_of

STATES = pathlib.Path(__file__).parents[1] / "monitor" / "states"


class Monitor(Case):
    def look(self, *words, env=None):
        return self.brim("monitor", "--json", *words, env=env).json

    def run_of(self, process):
        return next((run for run in self.look()["runs"] if run["pid"] == process.pid), None)

    def until_run(self, process, condition, what):
        found = []

        def holds():
            found[:] = [self.run_of(process)]
            return found[0] is not None and condition(found[0])
        self.until(holds, process, what=what)
        return found[0]

    def until_first_step(self, process):
        """Waits until the run's folder has a step, and its slot, which is written later, shows the step."""
        self.until_run(process, lambda run: 0 < run["step"] < run["steps"], "the first step")

    def test_a_run_is_shown_with_its_memory_progress_and_curves(self):
        process = self.hold("runs/a", *SMALL, "observe.log_every_steps=1")
        run = self.until_run(process, lambda run: run["step"] > 2 and run["curves"] and run["state"] == "training",
                             "the first steps")
        plan = self.json("runs/a", "plan.json")
        self.assertEqual((run["name"], run["model"], run["dataset"], run["command"], run["mine"]),
                         ("a", "mlp", "synthetic", "train", True))
        self.assertEqual(run["folder"], str((self.folder / "runs" / "a").resolve()))
        self.assertEqual((run["device"], run["device_bytes"]), ("cpu:0", plan["peak_bytes"]))
        self.assertEqual({part["class"]: part["bytes"] for part in run["memory"]},
                         {name: bytes for name, bytes in plan["classes"].items() if bytes > 0})
        self.assertEqual(run["curves"][0]["curve"], "train loss")
        self.assertEqual(run["curves"][0]["step"][0], 1)
        self.assertGreater(run["loss"], 0)
        self.assertEqual(run["events"][0]["event"], "started")
        text = self.brim("monitor", "--once").out
        self.assertRegex(text, r"\n  a +training .* mlp +mine")
        self.assertNotIn("\x1b", text)

    def test_of_all_plugins_only_backends_are_opened(self):
        self.brim("monitor", "--once", env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": "loads"})
        loads = "".join(path.read_text(encoding="utf-8", errors="replace") for path in self.folder.glob("loads*"))
        kinds = {path.split("/")[-2] for path in re.findall(r"file=(\S*/plugins/\w+/\w+\.so)", loads)}
        self.assertEqual(kinds, {"backend"})

    def test_of_a_long_file_some_records_give_the_curves_and_the_newest_the_figures(self):
        self.train("runs/a", *SMALL, "training.steps=2")
        lines = []
        for step in range(1, 3001):
            figures = {"loss": 3 - step / 1000, "accuracy": step / 3000}
            lines.append({"step": step, "epoch": 1, "split": "train", **figures, "samples": 32, "seconds": 0.5})
            if step % 200 == 0:
                lines.append({"step": step, "epoch": 1, "split": "test", **figures})
        (self.folder / "runs/a/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        run, = self.look()["runs"]
        curves = {curve["curve"]: curve for curve in run["curves"]}
        self.assertEqual((run["step"], run["loss"], run["score"]), (3000, 0, 1))
        self.assertEqual(curves["test loss"]["step"], list(range(200, 3001, 200)))
        steps = curves["train loss"]["step"]
        self.assertEqual((steps[0], steps[-1], steps), (1, 3000, sorted(steps)))
        self.assertGreater(len(steps), 32)
        self.assertLess(max(b - a for a, b in zip(steps, steps[1:])), 100, "all parts of the run are there")
        with open(self.folder / "runs/a/metrics.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps({**lines[-2], "step": 3000 + i, "loss": 7}) + "\n" for i in range(1, 400))
        self.assertEqual((self.look()["runs"][0]["step"], self.look()["runs"][0]["loss"]), (3399, 7))

    def test_memory_is_shared_out_among_owners(self):
        process = self.hold("a", *JOB, *devices_of(1))
        self.until_first_step(process)
        look = self.look()
        shares = [device for device in look["devices"] if not device["is_host"]]
        self.assertEqual([device["device"] for device in shares], ["cpu:0", "cpu:1"])
        self.assertEqual(len(shares), len(look["devices"]))
        for device in look["devices"]:
            parts = ("mine_bytes", "brim_bytes", "libraries_bytes", "other_bytes", "free_bytes")
            self.assertEqual(sum(device[part] for part in parts), device["total_bytes"])
        self.assertEqual(shares[0]["mine_bytes"] + shares[1]["mine_bytes"], self.json("a", "plan.json")["peak_bytes"])

    def test_a_waiting_run_has_a_place_an_expected_start_and_advice(self):
        holder = self.hold("a", *JOB, *devices_of(1), "device=cpu:0", "training.epochs=100000")
        waiting = self.start("train", "run.dir=b", *JOB, *devices_of(1), "device=cpu:0", *WAIT)
        self.until(lambda: self.look()["queue"], holder, waiting, what="the wait")
        run = self.until_run(holder, lambda run: run["seconds_left"] is not None, "the time left")
        look = self.look()
        place = look["queue"][0]
        self.assertEqual((place["place"], place["pid"], place["wish"], place["claimed"]),
                         (1, waiting.pid, "cpu:0", None))
        self.assertEqual(look["runs"][place["run"]]["state"], "waiting")
        self.assertEqual([look["devices"][i]["device"] for i in place["accepts"]], ["cpu:0"])
        self.assertGreater(place["starts"], look["hosts"][0]["time"] + run["seconds_left"] / 2)
        self.assertIn("fits on cpu:1 now", look["advice"][0]["text"])
        self.assertEqual(look["advice"][0]["command"], f"kill -INT {waiting.pid}  # then start it with device=cpu:1")
        text = self.brim("monitor", "--once").out
        self.assertRegex(text, r"\nqueue 1 .* on cpu:0 .*~\d\d:\d\d")
        self.assertIn(f"  kill -INT {waiting.pid}  # then start it with device=cpu:1\n", text)

    def test_runs_that_have_ended_stay_with_their_end(self):
        """A monitor shows ended runs as long as it runs, for at most ten minutes. A monitor that starts finds them in
        runs/."""
        processes = {name: self.hold(f"runs/{name}", *SMALL) for name in ("killed", "interrupted", "deleted")}
        for name in processes:
            self.until_first_step(processes[name])
        monitor = self.start("monitor", "--json", "--every", "0.1")
        self.assertEqual({run["name"] for run in json.loads(monitor.stdout.readline())["runs"]},
                         {"killed", "interrupted", "deleted"})
        self.train("runs/finished", *SMALL)
        processes["killed"].kill()
        processes["deleted"].kill()
        processes["interrupted"].send_signal(signal.SIGINT)
        self.finish(processes["interrupted"], INTERRUPTED)
        processes["killed"].wait()
        processes["deleted"].wait()
        shutil.rmtree(self.folder / "runs" / "deleted")
        want = {"killed", "interrupted"}  # the finished run may have begun and ended between two looks
        while True:
            runs = {run["name"]: run for run in json.loads(monitor.stdout.readline())["runs"]}
            if {name for name, run in runs.items() if run["state"] == name} >= want and "deleted" not in runs:
                break
        self.assertGreater(runs["killed"]["step"], 0)
        self.assertGreater(runs["killed"]["steps"], 0)
        self.assertEqual((runs["killed"]["pid"], runs["killed"]["seconds_left"]), (0, None))
        monitor.send_signal(signal.SIGINT)
        later = {run["name"]: run for run in self.look()["runs"]}
        self.assertEqual({name: run["state"] for name, run in later.items()},
                         {name: name for name in ("killed", "interrupted", "finished")})
        self.assertEqual(later["finished"]["model"], "mlp")
        self.assertRegex(self.brim("monitor", "--once").out, r"\n  finished +finished +.* ago ")
        os.utime(self.folder / "runs" / "killed" / "events.jsonl", (1, 1))
        os.utime(self.folder / "runs" / "killed" / "metrics.jsonl", (1, 1))
        self.assertNotIn("killed", {run["name"] for run in self.look()["runs"]})

    def test_a_run_whose_last_hook_hangs_has_its_name(self):
        os.mkfifo(self.folder / "pipe")
        process = self.start("train", "run.dir=runs/hooked", *SMALL, f"hooks.on_end=read x <{self.folder / 'pipe'}")
        run = self.until_run(process, lambda run: run["state"] == "stopping" and
                             (self.folder / "runs/hooked/report.html").exists() and
                             not self.holds_lock("runs/hooked"), "the hook")
        self.assertEqual((run["name"], run["model"]), ("hooked", "mlp"))
        write(self.folder / "pipe", b"x\n")
        self.finish(process, 0)

    def test_a_stopped_run_is_named_with_its_silence(self):
        process = self.hold("a", *SMALL)
        self.until_first_step(process)
        self.suspend(process.pid)
        run = self.until_run(process, lambda run: run["stopped"] and run["silent_seconds"], "ten seconds of silence")
        self.assertGreaterEqual(run["silent_seconds"], 10)
        text = self.brim("monitor", "--once").out
        self.assertRegex(text, r"\n  a +stopped .*no step for \d+ s")
        self.assertIn(f"kill -CONT {process.pid}\n", text)
        process.send_signal(signal.SIGCONT)
        self.until_run(process, lambda run: not run["stopped"] and not run["silent_seconds"], "the next step")

    def test_a_folder_is_followed_while_it_grows(self):
        process = self.hold("a", *SMALL, "observe.log_every_steps=1", "training.eval_every_steps=2")
        monitor = self.start("monitor", "--json", "--every", "0.2", out=open(self.folder / "looks.json", "w"))

        def looks():
            text = self.read("looks.json")  # the last line may be incomplete
            return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
        self.until(lambda: any(len(run["curves"]) >= 2 and run["curves"][0]["step"][-1] > 200
                               for look in looks() for run in look["runs"]), process, monitor, what="200 steps")
        monitor.send_signal(signal.SIGINT)
        self.finish(monitor, 0)
        for look in looks():
            for run in look["runs"]:
                for curve in run["curves"]:
                    self.assertLessEqual(len(curve["step"]), 128)
                    self.assertEqual(curve["step"], sorted(set(curve["step"])))
        self.assertEqual(self.brim("monitor", "--json", "--from", "looks.json").json, looks()[0])
        replayed = self.brim("monitor", "--json", "--every", "0.1", "--from", "looks.json").out
        self.assertEqual([json.loads(line) for line in replayed.splitlines()], looks())

    def test_recorded_looks_read_back_equal(self):
        for state in sorted(STATES.glob("*.json")):
            with self.subTest(state.name):
                first = self.brim("monitor", "--json", "--from", state).out
                write(self.folder / "again.json", first.encode())
                self.assertEqual(self.brim("monitor", "--json", "--from", "again.json").out, first)
                self.brim("monitor", "--once", "--from", state)

    def test_damaged_and_foreign_files_are_named(self):
        for text, message in (('{"a": 1}', "it is not JSON of `brim monitor --json`"),
                              ('{"brim_look": 1, "hosts": [', "in its line 1"),
                              ('{"brim_look": 9}', "its format is version 9"),
                              ('{"brim_look": 1, "hosts": [{"name": 3}]}', "hosts[0].name: a text is expected"),
                              ("\x00\xff", "snapshot 1 of 'x.json'"), ("", "snapshot 1 of 'x.json'")):
            write(self.folder / "x.json", text.encode("latin-1"))
            self.assert_error(self.brim("monitor", "--from", "x.json", status=None), "x.json", message)
        self.assert_error(self.brim("monitor", "--from", "gone.json", status=None), "cannot read 'gone.json'")
        os.mkfifo(self.folder / "pipe")
        self.assert_error(self.brim("monitor", "--from", "pipe", status=None), "pipe")

    def test_words_that_do_not_fit_are_named(self):
        for words, message in ((["--every", "x"], "--every x"), (["--every", "0"], "--every 0"),
                               (["--once", "--every", "1"], "exclude each other"),
                               (["--json", "--metrics", "m.prom"], "exclude each other"),
                               (["lab7", "--from", "x.json"], "exclude each other"),
                               (["--", "-oProxyCommand=touch hacked"], "is not the name of a host"),
                               (["a b"], "is not the name of a host")):
            self.assert_error(self.brim("monitor", *words, status=None), message)
        self.assertFalse((self.folder / "hacked").exists())

    # ---- other hosts ----

    def fake_ssh(self, body):
        """Makes a program `ssh` that is found before the system's. $host is the host, and "$@" the command there."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        script = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nhost=$2; shift 2\n' + body
        write(folder / "ssh", script.encode())
        os.chmod(folder / "ssh", 0o755)
        if not (folder / "brim").exists():
            os.symlink(BINARY, folder / "brim")
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_hosts_are_shown_together(self):
        process = self.hold("a", *SMALL)
        self.until_run(process, lambda run: True, "the run")
        env = self.fake_ssh('[ "$host" = down ] && { echo banner >&2; echo "ssh: connect to host down: No route" >&2; '
                            'exit 255; }\nexec "$@"\n')
        look = self.look("ann@lab7", "down", "localhost", env=env)
        self.assertEqual([host["failure"] for host in look["hosts"]],
                         [None, None, "ssh: connect to host down: No route"])
        self.assertEqual(look["hosts"][2]["name"], "down")
        self.assertEqual([run["host"] for run in look["runs"]], [0, 1])
        self.assertEqual([run["pid"] for run in look["runs"]], [process.pid] * 2)
        self.assertIn("No route", self.brim("monitor", "--once", "lab7", "down", env=env).out)
        lines = self.start("monitor", "--json", "--every", "0.1", "lab7", "down", env=env)
        for _ in range(2):
            self.assertEqual(len(json.loads(lines.stdout.readline())["hosts"]), 2)
        lines.send_signal(signal.SIGTERM)

    def test_a_host_that_does_not_answer_is_an_error_with_its_reason(self):
        for body, message in (('echo "ssh: no such host" >&2; exit 255', "ssh: no such host"),
                              ("exit 0", "ssh ended without an answer"),
                              ('echo "sh: brim: not found" >&2; exit 127',
                               "a non-interactive shell on that host must find brim"),
                              ("echo hello", "its answer is not the JSON of brim monitor"),
                              ("""echo '{"brim_look": 1, "runs": 3}'""", "runs: an array is expected"),
                              ("""printf '\\033[2J{"brim_look": 7}'""", "not the JSON")):
            result = self.brim("monitor", "--once", "lab7", status=None, env=self.fake_ssh(body))
            self.assert_error(result, "no host answered: lab7", message)
            self.assertNotIn("\x1b", result.out + result.err)

    # ---- metrics ----

    def check_metrics(self, text, runs):
        families = openmetrics.parse(text)
        for family in families:  # the older format of the textfile collector allows only these types
            self.assertIn(family.type, ("gauge", None))
            self.assertTrue(family.help and family.samples, family.name)
        self.assertLessEqual(sum(len(family.samples) for family in families), 200 * max(runs, 1))
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def test_the_parser_of_metrics_refuses_what_openmetrics_forbids(self):
        good = '# TYPE a gauge\n# HELP a text "x"\na{b="\\"\\n\\\\",c="é"} -1.5e+3\na 2\n# EOF\n'
        self.assertEqual([list(family.samples.values()) for family in openmetrics.parse(good)], [[-1500, 2]])
        for text in ("a 1\n", "a 1\n# EOF", "a 1\n# EOF\n\n", "\n# EOF\n", "# EOF\na 1\n# EOF\n",
                     *(line + "\n# EOF\n" for line in (
                         "a 1 ", "a  1", "a", "a x", "a 0x1", "a 1 2 3", "1a 1", "a{b=1} 1", 'a{b="x} 1',
                         'a{b="\\t"} 1',
                         'a{b="1",b="2"} 1', 'a{b="1" ,c="2"} 1', 'a{__b="1"} 1', "a 1\na 1", 'a 1\nb 1\na{c="1"} 1',
                         "# TYPE a gauge\nb 1\n# TYPE a gauge", "a 1\n# TYPE a gauge", "# TYPE a gaugee", "# note\na 1",
                         "# TYPE a counter\na 1\na_total 2\na 3", "# TYPE a counter\na_total -1",
                         "# TYPE a counter\na_total 1\n# TYPE a_total gauge"))):
            with self.subTest(text):
                self.assertRaises(openmetrics.Problem, openmetrics.parse, text)

    def test_metrics_of_all_runs(self):
        process = self.hold("a\"\\\n", *JOB, *devices_of(1))
        self.until_first_step(process)
        self.brim("monitor", "--metrics", "m.prom")
        found = self.check_metrics(self.read("m.prom"), 1)
        run = f'run="a\\"\\\\\\n",user="{self.look()["runs"][0]["user"]}",pid="{process.pid}",rank="0"'
        self.assertEqual([found[key] for key in found if key.startswith("brim_run_info{") and run in key], ["1"])
        phases = {key: value for key, value in found.items() if key.startswith("brim_run_phase{")}
        self.assertEqual(sorted(phases.values()), ["0"] * 7 + ["1"])
        self.assertEqual([value for key, value in found.items() if key.startswith("brim_queue_runs{")], ["0"])
        plan = [int(value) for key, value in found.items() if key.startswith("brim_plan_bytes{")]
        self.assertEqual(sum(plan), sum(part["bytes"] for part in self.look()["runs"][0]["memory"]))

    def test_metrics_of_many_runs_and_gpus(self):
        for state in sorted(STATES.glob("*.json")):
            with self.subTest(state.name):
                self.brim("monitor", "--metrics", "m.prom", "--from", state)
                look = self.look("--from", state)
                found = self.check_metrics(self.read("m.prom"), len(look["runs"]) + len(look["devices"]))
                for device in look["devices"]:
                    if device["uuid"]:
                        self.assertTrue(any(f'UUID="{device["uuid"]}"' in key and 'gpu="' in key and "Hostname=" in key
                                            for key in found))

    def test_a_metrics_file_in_a_folder_that_is_gone_is_an_error_at_first_and_later_a_warning(self):
        result = self.brim("monitor", "--metrics", "gone/m.prom", status=None)
        self.assert_error(result, "there is no folder 'gone'")
        (self.folder / "there").mkdir()
        process = self.start("monitor", "--metrics", "there/m.prom", "--every", "0.1")
        self.until(lambda: (self.folder / "there/m.prom").exists(), process, what="the file")
        os.rename(self.folder / "there", self.folder / "moved")
        self.assertIn("there/", process.stderr.readline())
        os.rename(self.folder / "moved", self.folder / "there")
        before = os.stat(self.folder / "there/m.prom").st_ino
        self.until(lambda: os.stat(self.folder / "there/m.prom").st_ino != before, process, what="the next file")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process, 0).err, "")
        self.assertEqual(os.listdir(self.folder / "there"), ["m.prom"])

    def test_a_run_writes_its_own_metrics(self):
        self.train("a", *SMALL, "observe.metrics_file=a.prom")
        found = self.check_metrics(self.read("a.prom"), 1)
        self.assertEqual([value for key, value in found.items() if 'phase="finished"' in key], ["1"])
        steps = [value for key, value in found.items() if key.startswith(("brim_run_step{", "brim_run_steps{"))]
        self.assertEqual(steps, [str(self.summary("a")["steps"])] * 2)
        loss = [value for key, value in found.items() if key.startswith("brim_run_loss{")]
        self.assertAlmostEqual(float(loss[0]), self.summary("a")["train_loss"], places=9)
        self.train("b", *SMALL)
        self.assert_same_checkpoint("a", "b", self.steps("a")[-1])

    def test_a_run_whose_metrics_file_cannot_be_written_goes_on_with_one_warning(self):
        result = self.train("a", *SMALL, "observe.metrics_file=gone/a.prom")
        self.assertEqual(result.err.count("the run continues without observe.metrics_file"), 1, result)
        self.assertIn("gone/", result.err)


if __name__ == "__main__":
    main()
