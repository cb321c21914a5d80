"""Tests brim runs, which lists and filters runs, shows and compares them, tags them, deletes them so that they can be
restored."""

import csv
import io
import json
import os
import pathlib
import pty
import shutil

from support import BINARY, DONE, LOAD, SMALL, USAGE, Case, main, plain

CONFIG = """seed: {seed}
device: auto
model:
  id: {model}
  hidden: [16]
dataset:
  id: synthetic
  option: synthetic
optimizer:
  id: adamw
  lr: {lr}
schedule:
  id: cosine
augment:
  flip: false
  mixup: 0.2
run:
  name: ""
  dir: runs/x
"""


class Folder(Case):
    """Makes folders like those of runs, without training."""

    def make(self, path, status="finished", model="mlp", lr="1e-3", seed=1, started=1700000000, **results):
        run = self.folder / path
        (run / "checkpoints" / "step-00000008").mkdir(parents=True)
        (run / "config.yaml").write_text(CONFIG.format(model=model, lr=lr, seed=seed))
        (run / "sources.yaml").write_text(CONFIG.format(model=model, lr=lr, seed=seed))
        (run / "overrides.yaml").write_text(f"- 'model={model}'\n- 'optimizer.lr={lr}'\n")
        (run / "events.jsonl").write_text(json.dumps({"time": started, "event": "started", "step": 0}) + "\n")
        (run / ".lock").write_text("1234567\n")
        (run / "metrics.jsonl").write_text(
            '{"step": 4, "split": "train", "loss": 0.75}\n{"step": 8, "split": "train", "loss": 0.5}\n'
            '{"step": 8, "split": "test", "loss": 0.625, "accuracy": 0.5}\n')
        (run / "checkpoints" / "step-00000008" / "model.safetensors").write_bytes(b"x" * 1000)
        (run / "checkpoints" / "last").symlink_to("step-00000008")
        if status:
            figures = {"status": status, "steps": 8, "test_loss": 0.5, "test_accuracy": 0.5, "wall_seconds": 90.5}
            (run / "summary.json").write_text(json.dumps({**figures, **results}))
        return run

    def names(self, *argv, status=DONE):
        """Returns the names of the runs in a list, in its order."""
        out = self.brim("runs", "--csv", "--columns", "name", *argv, status=status).out.splitlines()
        return [pathlib.Path(line).name for line in out[1:]]

    def json_of(self, *argv):
        return self.brim("runs", "--json", *argv).json["runs"]


class List(Folder):
    def setUp(self):
        super().setUp()
        self.make("runs/a", model="vit", test_accuracy=0.95, started=1700000300)
        self.make("runs/b", model="vit", lr="3e-3", test_accuracy=0.85, started=1700000200)
        self.make("runs/c", status="failed", lr="0.01", test_accuracy=None, started=1700000100)
        self.brim("runs", "tag", "paper,final", "runs/a", "runs/c")
        self.brim("runs", "note", "the first, with \"quotes\"", "runs/b")

    @plain
    def test_a_table_newest_first(self):
        out = self.brim("runs").out.splitlines()
        self.assertEqual([line.split()[0] for line in out], ["run", "runs/a", "runs/b", "runs/c"])
        self.assertEqual([line.split()[1] for line in out[1:]], ["finished", "finished", "failed"])
        self.assertIn("final,paper", out[1])

    def test_filters(self):
        for where, names in (
                ("model=vit", "ab"), ("model = vit and test.accuracy > 0.9", "a"), ("test.accuracy>90%", "a"),
                ("tag=paper", "ac"), ("tag=final and not tag=other", "ac"), ("tag!=paper", "b"), ("not tag", "b"),
                ("note", "b"), ("note~quotes", "b"), ("note='the first, with \"quotes\"'", "b"), ("note~'the *'", "b"),
                ("status=failed or lr=3e-3", "bc"), ("(status=failed or lr=3e-3) and model=mlp", "c"),
                ("lr=0.003", "b"), ("optimizer.lr>=0.003", "bc"), ("config.optimizer.lr<0.003", "a"),
                ("test.accuracy!=0.95", "bc"), ("test.accuracy", "ab"), ("not test.accuracy", "c"),
                ("augment.flip", ""), ("augment.flip=false", "abc"), ("mixup>0", "abc"), ("name~a", "a"),
                ("name!~[ab]", "c"), ("started>2001-01-01", "abc"), ("hidden=[16]", "abc"), ("steps=8", "abc"),
                ("seconds>60 and model==vit or status==failed", "abc"), ("name=a", "a"), ("name=runs/a", "a"),
                ("name=./runs/a/", "a"), ("name~runs/*", "abc"), ("started=2023-11", "abc"), ("started<2023", ""),
                ("lr>'0.005'", "c"), ("schedule=cosine", "abc"), ("seed<1", "")):
            with self.subTest(where):
                self.assertEqual("".join(self.names("--where", where)), names)

    def test_a_filter_that_does_not_parse_names_the_place(self):
        for where, column, problem in (
                ("model=vit und seed=1", 11, "expected 'and', 'or' or the end, found 'und'"),
                ("model=vit and", 14, "expected a key such as model or test.accuracy, but the expression ends here"),
                ("model=", 7, "expected a value, but the expression ends here"),
                ("(model=vit", 11, "expected ')', but the expression ends here"),
                ("model=vit)", 10, "found ')'"), ("", 1, "expected a key"), ("model='vit", 7, "this quote has no end"),
                ("model=vit and and", 15, "found 'and'"), ("é=1 und", 5, "found 'und'"),
                ("model=vit and lrr>1", 15, "no run here has 'lrr'"),
                ("modle=vit", 1, "no run here has 'modle'; did you mean 'model'?"),
                ("model=vit && lr>1", 11, "write 'and' instead of '&&'"),
                ("tag || note", 5, "write 'or' instead of '||'"),
                ("!tag", 1, "write 'not' instead of '!'"),
                 ("id=vit", 1, "'id' may mean model.id or dataset.id and others: write more of the key")):
            with self.subTest(where):
                err = self.brim("runs", "--where", where, status=USAGE).err
                self.assertIn(f"--where, character {column}: ", err)
                self.assertIn(problem, err)
                lines = err.splitlines()
                if where and not where.startswith("é"):
                    self.assertEqual(lines[-2].strip(), where)
                    self.assertEqual(lines[-1].index("^") - lines[-2].index(where[0]), column - 1)
        deep = "(" * 100 + "seed=1" + ")" * 100
        self.assert_error(self.brim("runs", "--where", deep, status=USAGE), "more than 64 levels")
        self.assert_error(self.brim("runs", "--where", "a" * 5000, status=USAGE), "longer than 4096 bytes")

    def test_a_value_that_no_run_can_have_is_an_error_with_its_place(self):
        for where, column, problem in (
                ("status=finishd", 8, "'status' is never 'finishd'; did you mean 'finished'?"),
                ("not status=crashed", 12, "it is finished, interrupted, failed, running, unfinished or unreadable"),
                ("lr>abc", 4, "'lr' is compared with a number, and 'abc' is not one"), ("seed=auto", 6, "a number"),
                ("test.accuracy<0,5", 15, "write 0.5"), ("loss<nan", 6, "'nan' is not one"),
                ("model>vit", 7, "'model' has no numbers here"), ("name<b", 6, "'name' has no numbers here"),
                ("augment.flip=flase", 14, "did you mean 'false'?"), ("started>yesterday", 9, "is a date, such as"),
                ("started<27.11.2026", 9, "is a date"), ("started>=2026-13", 10, "is a date"),
                ("started='2026-11-27 14'", 9, "is a date"), ("test.acuracy!=0.5", 1, "did you mean 'test_accuracy'?"),
                ("not test.nosuch", 5, "no run here has 'test.nosuch'")):
            for verb in ((), ("delete",), ("tag", "x"), ("prune",)):
                with self.subTest(where, verb=verb):
                    err = self.brim("runs", *verb, "--where", where, status=USAGE).err
                    self.assertIn(f"--where, character {column}: ", err)
                    self.assertIn(problem, err)
        self.assertIn("no run here has model=vti; did you mean 'vit'?", self.brim("runs", "--where", "model=vti").err)
        (self.folder / "none").mkdir()
        self.assertIn("no runs here", self.brim("runs", "none", "--where", "lrr>abc").out)

    @plain
    def test_a_name_is_the_path_as_listed_whatever_is_searched(self):
        for operands in ((), ("runs",), ("runs/a", "runs/b"), ("./runs/",), (str(self.folder / "runs"),)):
            for where in ("name=a", "name=runs/a", "name~runs/a"):
                with self.subTest(operands=operands, where=where):
                    self.assertEqual(self.names(*operands, "--where", where), ["a"])

    @plain
    def test_words_of_other_programs(self):
        for word, text in (("ls", "brim runs [FOLDER...]"), ("list", "brim runs [FOLDER...]"),
                           ("rm", "brim runs delete RUN..."), ("delte", "did you mean 'brim runs delete'?")):
            self.assert_error(self.brim("runs", word, "runs/a", status=USAGE), f"there is no folder '{word}'", text)
        self.make("ls/a")
        self.assertEqual(self.names("ls"), ["a"], "a folder of this name")

    @plain
    def test_sort_columns_and_limit(self):
        self.assertEqual(self.names("--sort", "test.accuracy"), ["b", "a", "c"])  # c has none
        self.assertEqual(self.names("--sort", "-lr"), ["c", "b", "a"])
        self.assertEqual(self.names("--sort=name", "--limit", "2"), ["a", "b"])
        out = self.brim("runs", "--csv", "--columns", "name,lr,test.accuracy,note", "--sort", "name").out
        self.assertEqual(list(csv.reader(io.StringIO(out))),
                         [["run", "lr", "test.accuracy", "note"], ["runs/a", "1e-3", "0.95", ""],
                          ["runs/b", "3e-3", "0.85", "the first, with \"quotes\""], ["runs/c", "0.01", "", ""]])
        self.assert_error(self.brim("runs", "--columns", "name,nosuch", status=USAGE), "--columns: no run here has")
        self.assert_error(self.brim("runs", "--columns", "name,,lr", status=USAGE), "an empty name")
        self.assert_error(self.brim("runs", "--sort", "nosuch", status=USAGE), "--sort: no run here has")
        self.assert_error(self.brim("runs", "--columns", "", status=USAGE), "--columns needs a key")
        self.assert_error(self.brim("runs", "--limit", "0", status=USAGE), "--limit")

    def test_what_a_list_shows_can_be_written(self):
        """Titles, times, dates and rounded numbers are accepted for the keys and values that they show."""
        self.make("multirun/z", model="mlp", wall_seconds=5400.4, test_accuracy=0.953125, started=1700000050)
        lines = self.brim("runs", "--columns", "run,time,accuracy,started", "--sort", "-time").out.splitlines()
        self.assertEqual(lines[0].split(), ["run", "time", "accuracy", "started"])
        self.assertEqual(lines[1].split()[:3], ["multirun/z", "1:30:00", "0.95312"])
        self.assertEqual(lines[2].split()[1], "1:31", "90.5 seconds")
        for where, names in (("time=1:30:00", "z"), ("time=1:31", "abc"), ("time=90.5", "abc"),
                             ("seconds>=1:30:00", "z"), ("time<0:59", ""), ("time>1:31", "z"), ("time!=1:31", "z"),
                             ("run=multirun/z", "z"),
                             ("run~runs/*", "abc"), ("accuracy=0.95312", "z"), ("accuracy=0.953125", "z"),
                             ("accuracy=0.9531", ""), ("tags=paper", "ac"), ("lr=0.003", "b")):
            with self.subTest(where):
                self.assertEqual("".join(sorted(self.names("--where", where))), names)
        self.assertEqual(self.names("--sort", "run"), ["z", "a", "b", "c"], "paths as listed")
        self.assertEqual(self.names("--sort", "-name"), ["c", "b", "a", "z"])
        title = self.brim("runs", "--csv", "--columns", "run,time", "runs/a").out
        self.assertEqual(title.splitlines(), ["run,seconds", "runs/a,90.5"], "programs get seconds, and see so")
        self.assertEqual(self.json_of("--columns", "time,tags", "runs/a"),
                         [{"run": "runs/a", "seconds": 90.5, "tags": ["final", "paper"]}])
        for where, column in (("time>1:3", 6), ("time=1:60", 6), ("time>soon", 6), ("time<:30", 6)):
            self.assert_error(self.brim("runs", "--where", where, status=USAGE), f"character {column}: 'time' is "
                              "compared with a number of seconds or a time such as 1:30:00")
        self.assertIn("did you mean 'time'?", self.brim("runs", "--sort", "tiem", status=USAGE).err)

    def test_json_has_everything(self):
        a, b, c = self.json_of()
        self.assertEqual((a["run"], a["status"], a["model"], a["tags"]),
                         ("runs/a", "finished", "vit", ["final", "paper"]))
        self.assertEqual((a["config"]["optimizer.lr"], a["config"]["augment.flip"]), (0.001, False))
        self.assertEqual(a["results"]["test_accuracy"], 0.95)
        self.assertEqual((b["note"], b["tags"], b["config"]["model.hidden"]),
                         ("the first, with \"quotes\"", [], "[16]"))
        self.assertNotIn("test_accuracy", c["results"])
        self.assertEqual(self.json_of("--columns", "lr,tag", "--where", "name=a"),
                         [{"run": "runs/a", "lr": 0.001, "tags": ["final", "paper"]}])
        self.assertEqual(self.json_of("--where", "name=none"), [])

    def test_folders_of_folders_and_single_runs(self):
        for job in (10, 9, 2):
            self.make(f"multirun/sweep/{job}", started=1600000000)
        self.assertEqual(self.names("multirun", "--sort", "name"), ["2", "9", "10"])
        self.assertEqual(len(self.names()), 6)
        self.assertEqual(self.names("runs/b"), ["b"])
        self.assertEqual(self.names("runs", "multirun", "--where", "name~sweep/9"), ["9"])
        (self.folder / "runs/link").symlink_to("a")
        (self.folder / "runs/.hidden").mkdir()
        self.assertEqual(len(self.names("runs")), 3, "links are not followed")

    @plain
    def test_no_runs(self):
        self.assertIn("no run matches; there are 3", self.brim("runs", "--where", "seed=77").out)
        (self.folder / "none").mkdir()
        self.assertIn("no runs here", self.brim("runs", "none").out)
        missing = "expected the folder of a run, or a folder of runs"
        self.assert_error(self.brim("runs", "nosuch", status=LOAD),
                          "there is no folder 'nosuch', nor one of this name in 'runs'", missing)
        self.make("runs/cnn-wide")
        self.make("experiments/first/a")
        for operand, near in (("cnn-wdie", "runs/cnn-wide"), ("runs/cnn_wid", "runs/cnn-wide"),
                              ("experiment", "experiments"), ("experiments/frist/", "experiments/first")):
            for verb in ((), ("show",)):
                with self.subTest(operand, verb=verb):
                    self.assert_error(self.brim("runs", *verb, operand, status=LOAD), missing,
                                      f"there is no folder '{operand.rstrip('/')}'", f"did you mean '{near}'?")
        self.assert_error(self.brim("runs", "experiments/nosuch", status=LOAD),
                          "there is no folder 'experiments/nosuch'\n")
        self.assert_error(self.brim("runs", "runs/a/config.yaml", status=LOAD), "is a file, not the folder of a run")
        shutil.rmtree(self.folder / "runs")
        self.assert_error(self.brim("runs", status=LOAD), "name the folder of your runs")

    @plain
    def test_options_that_do_not_apply(self):
        self.assert_error(self.brim("runs", "--remove", status=USAGE), "--remove has no effect on brim runs")
        self.assert_error(self.brim("runs", "delete", "--json", "runs/a", status=USAGE), "--json has no effect")
        self.assert_error(self.brim("runs", "--json", "--csv", status=USAGE), "exclude each other")
        self.assert_error(self.brim("runs", "show", status=USAGE), "no run is named")
        self.assert_error(self.brim("runs", "diff", "runs/a", status=USAGE), "needs two runs")
        self.assert_error(self.brim("runs", "delete", status=USAGE), "no run is named")

    @plain
    def test_compare_and_report_take_a_folder_of_runs(self):
        compared = self.brim("compare", "--json", "runs").json["runs"]
        self.assertEqual([run["run"] for run in compared], ["runs/a", "runs/b", "runs/c"])
        self.brim("report", "runs/", "-o", "all.html")
        page = self.read("all.html")
        for name in "abc":
            self.assertIn(f">{name}<", page)
        (self.folder / "runs/b/config.yaml").write_text("a: [")
        for argv in (["compare", "nosuch"], ["report", "nosuch", "-o", "x.html"]):
            self.assert_error(self.brim(*argv, status=LOAD), "there is no run 'nosuch': No such file or directory")
        (self.folder / "closed").mkdir()
        os.chmod(self.folder / "closed", 0)
        self.assert_error(self.brim_as_user("compare", "closed", status=LOAD), "folder 'closed': Permission denied")
        result = self.brim("compare", "runs")
        self.assertIn("left out: ", result.err)
        self.assertIn("runs/b/config.yaml:2:1", result.err)
        self.assertEqual(len(result.out.split("\n\n")[0].splitlines()), 3)


class Unreadable(Folder):
    def test_a_run_without_a_summary_shows_its_last_records(self):
        self.make("runs/a", status=None)
        run, = self.json_of()
        self.assertEqual((run["status"], run["results"]["steps"], run["results"]["train_loss"],
                          run["results"]["test_accuracy"]), ("unfinished", 8, 0.5, 0.5))

    def test_damaged_files_are_named_and_the_others_listed(self):
        self.make("runs/good")
        (self.make("runs/config") / "config.yaml").write_text("seed: 1\nmodel: [")
        (self.make("runs/summary") / "summary.json").write_text('{"status": "fini')
        (self.make("runs/foreign") / "summary.json").write_text('[1, 2]')
        (self.make("runs/notes") / "notes.json").write_text('{"tags": "paper"}')
        (self.make("runs/pipe") / "summary.json").unlink()
        os.mkfifo(self.folder / "runs/pipe/summary.json")
        with open(self.make("runs/lines", status=None) / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 9, "split"\n{"loss": 1}\n[]\n{"lost":1}\n{"step": 10, "spl')
        result = self.brim("runs")
        self.assertEqual(len(result.out.splitlines()), 8)
        for text in ("runs/config/config.yaml:3:1", "runs/summary/summary.json:1:", "runs/foreign/summary.json has no "
                     "status", "runs/notes/notes.json' is not like", "runs/pipe/summary.json",
                     "runs/lines/metrics.jsonl: 3 lines are not records of brim, ignored; brim runs show runs/lines"):
            self.assertIn(text, result.err)
        self.assertEqual(self.names("--where", "status=unreadable"), ["config"])
        self.assertEqual(len(self.names("--where", "problem")), 6)
        shown = self.brim("runs", "show", "runs/lines").err
        for text in ("runs/lines/metrics.jsonl:4: ", "runs/lines/metrics.jsonl:5: not a record of brim",
                     "runs/lines/metrics.jsonl:6: "):
            self.assertIn(text, shown)
        self.assertNotIn("jsonl:7", shown)
        self.assertNotIn("jsonl:8", shown)

    @plain
    def test_runs_without_rights_to_read(self):
        self.make("runs/a")
        closed, secret = self.make("runs/closed"), self.make("runs/secret")
        os.chmod(self.folder, 0o755)
        os.chmod(closed, 0)
        os.chmod(secret / "config.yaml", 0)
        result = self.brim_as_user("runs", "--no-cache")
        self.assertEqual([line.split()[:2] for line in result.out.splitlines()][1:],
                         [["runs/a", "finished"], ["runs/closed", "unreadable"], ["runs/secret", "unreadable"]])
        self.assertIn("cannot read 'runs/closed': Permission denied", result.err)
        self.assertIn("runs/secret/config.yaml", result.err)

    def test_names_and_values_cannot_act_on_the_terminal(self):
        run = self.make("runs/a\x1b[2Jb")
        (run / "notes.json").write_text(json.dumps({"tags": [], "note": "bell \x07 \x9b2J"}))
        for argv in ([], ["--csv", "--columns", "name,note"], ["show", "runs/a\x1b[2Jb"]):
            out = self.brim("runs", *argv).out
            self.assertFalse(set(out) & {"\x1b", "\x07", "\x9b"}, argv)
        text = self.brim("runs", "--json").out
        self.assertFalse(set(text) & {"\x1b", "\x07", "\x9b"})
        self.assertEqual(json.loads(text)["runs"][0]["note"], "bell \x07 \x9b2J")
        self.make("turned/ab\u202efdp")
        for argv in (["runs", "turned"], ["compare", "turned"], ["runs", "show", "turned/ab\u202efdp"],
                     ["runs", "turned", "--json"]):
            out = self.brim(*argv).out
            self.assertIn("ab\\u202efdp", out)
            self.assertNotIn("\u202e", out)
        self.brim("report", "turned/ab\u202efdp", "-o", "turned.html")
        self.assertNotIn("\u202e", self.read("turned.html"))
        self.assertEqual(self.json_of("turned")[0]["run"], "turned/ab\u202efdp")
        self.assert_error(self.brim("runs", "tag", "a\u202eb", "turned/ab\u202efdp", status=USAGE),
                          "control characters")

    def test_lines_of_an_error_stay_lines(self):
        self.make("runs/a", status="failed", error="the loss is not a number\n  earlier checkpoints are kept")
        out = self.brim("runs", "show", "runs/a").out
        self.assertIn("error", out.splitlines()[-2])
        self.assertEqual(out.splitlines()[-1].strip(), "earlier checkpoints are kept")
        out = self.brim("runs", "--columns", "name,result.error").out
        self.assertIn("the loss is not a number; earlier checkpoints are kept", out)


class Cache(Folder):
    def setUp(self):
        super().setUp()
        for i in range(120):
            self.make(f"runs/r{i}", seed=i, test_accuracy=i / 200)
        self.first = self.brim("runs", "--json").out
        self.file, = (self.folder / "cache/brim/runs").iterdir()

    def test_the_cache_changes_no_answer(self):
        self.assertEqual(self.brim("runs", "--json").out, self.first)
        self.assertEqual(self.brim("runs", "--json", "--no-cache").out, self.first)
        whole = self.file.read_bytes()
        for damage in (b"", whole[:-8], whole[:40], whole[:200] + b"\xff" * 64 + whole[264:], whole + whole,
                       b"\0" * len(whole)):
            self.file.write_bytes(damage)
            self.assertEqual(self.brim("runs", "--json").out, self.first)
            self.assertEqual(self.file.read_bytes(), whole, "it is written again")
        self.file.unlink()
        self.assertEqual(self.brim("runs", "--json").out, self.first)

    def test_changes_of_runs_are_seen(self):
        before = self.file.read_bytes()
        self.brim("runs", "tag", "new", "runs/r7")
        self.assertEqual(self.names("--where", "tag=new"), ["r7"])
        self.assertNotEqual(self.file.read_bytes(), before)
        (self.folder / "runs/r8/summary.json").write_text('{"status": "failed"}')
        self.assertEqual(self.names("--where", "status=failed"), ["r8"])
        shutil.rmtree(self.folder / "runs/r9")
        self.make("runs/r9x", seed=1000)
        (self.folder / "runs/r10").rename(self.folder / "runs/z")
        self.assertEqual(self.names("--where", "seed=9 or seed=1000 or seed=10", "--sort", "name"), ["r9x", "z"])
        for i in range(40):  # more garbage than the cache keeps
            (self.folder / f"runs/r{i + 20}/summary.json").write_text(json.dumps({"status": f"s{i}"}))
            if i % 20 == 19:
                self.assertEqual(self.names("--where", f"status=s{i}"), [f"r{i + 20}"])
        self.assertEqual(self.brim("runs", "--json").out, self.brim("runs", "--json", "--no-cache").out)

    @plain
    def test_a_cache_that_cannot_be_written_is_no_error(self):
        self.file.unlink()
        shutil.rmtree(self.folder / "cache")
        (self.folder / "cache").write_text("a file")
        result = self.brim("runs", "--json")
        self.assertEqual((result.out, result.err), (self.first, ""))


class Trash(Folder):
    def state(self, path):
        """Returns everything about a folder that a copy must keep."""
        root = self.folder / path
        return {str(p.relative_to(root)): (os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else 0,
                                           p.lstat().st_mtime_ns, p.lstat().st_mode)
                for p in [root, *root.rglob("*")]}

    def test_delete_and_restore_keep_every_byte(self):
        self.make("runs/a")
        before = self.state("runs/a")
        self.assertIn("brim runs restore runs/a", self.brim("runs", "delete", "runs/a/").out)
        self.assertFalse((self.folder / "runs/a").exists())
        self.assertEqual(self.names("runs"), [], "deleted runs are not listed")
        self.assertIn("runs/a", self.brim("runs", "restore").out)
        self.brim("runs", "restore", "runs/a")
        self.assertEqual(self.state("runs/a"), before)
        self.assertIn("the trash is empty", self.brim("runs", "restore").out)

    @plain
    def test_the_newest_of_several_is_restored_and_none_is_overwritten(self):
        for seed in (1, 2):
            self.make("runs/a", seed=seed)
            self.brim("runs", "delete", "a")  # below runs
        self.make("runs/a", seed=3)
        self.assert_error(self.brim("runs", "restore", "runs/a", status=USAGE), "the name is taken")
        self.brim("runs", "delete", "runs/a")
        self.brim("runs", "restore", "a")
        self.assertEqual(self.names("runs", "--where", "seed=3"), ["a"])
        self.assert_error(self.brim("runs", "restore", "runs/b", status=LOAD), "no deleted run 'b' in 'runs/.trash'")

    def test_refusals(self):
        self.make("runs/a")
        (self.folder / "runs/link").symlink_to("a")
        (self.folder / "data").mkdir()
        (self.folder / "data/precious").write_text("data")
        (self.folder / "file").write_text("data")
        (self.folder / "config").mkdir()
        (self.folder / "config/config.yaml").write_text("model: mlp\n")  # a user's folder of configurations
        before = self.tree(".")
        for name, text in (("runs/link", "is a link"), ("runs/link/", "is a link"), ("data", "not the folder of a run"),
                           ("runs", "is not the folder of a run"), ("config", "is not the folder of a run"),
                           ("file", "is a file"), (".", "does not name a run"), ("runs/..", "does not name a run"),
                           ("/", "does not name a run")):
            with self.subTest(name):
                self.assert_error(self.brim("runs", "delete", name, status=USAGE), text)
        self.assert_error(self.brim("runs", "delete", "nosuch", status=LOAD), "there is no run 'nosuch'")
        self.assertEqual(self.tree("."), before)
        (self.folder / "runs/.trash").symlink_to(self.folder / "data")
        result = self.brim("runs", "delete", "runs/a", status=None)
        self.assert_error(result, "runs/.trash")
        self.assertTrue((self.folder / "runs/a").exists())

    @plain
    def test_a_running_run_is_not_deleted(self):
        process = self.hold("runs/a", *SMALL)
        self.assertEqual(self.names("--where", "status=running"), ["a"])
        self.assertNotIn("cross_entropy", self.brim("runs", "runs").out, "a loss is a number")
        self.assertNotIsInstance(self.json_of("--columns", "loss")[0]["loss"], str)
        self.assert_error(self.brim("runs", "delete", "runs/a", status=USAGE), f"is running (process {process.pid})")
        self.make("runs/b")
        result = self.brim("runs", "delete", "runs/b", "runs/a", status=USAGE)
        self.assertIn("is running", result.err)
        self.assert_error(result, "1 of 2 runs were not deleted")
        self.assertTrue((self.folder / "runs/a").exists())
        self.assertFalse((self.folder / "runs/b").exists())
        process.kill()
        process.wait()
        self.assertEqual(self.names("--where", "status=unfinished"), ["a"])
        self.brim("runs", "delete", "--where", "status=unfinished", "runs", "--yes")
        self.assertFalse((self.folder / "runs/a").exists())

    @plain
    def test_a_run_is_not_moved_away_with_a_folder_around_it(self):
        self.make("runs/a")
        process = self.hold("runs/a/inner", *SMALL)
        self.assert_error(self.brim("runs", "delete", "runs/a", status=USAGE), "'runs/a/inner' is running")
        self.assertTrue((self.folder / "runs/a").exists())
        process.kill()
        process.wait()
        self.brim("runs", "delete", "runs/a")

    def test_a_filter_shows_what_it_deletes_and_asks(self):
        for name in "abc":
            self.make(f"runs/{name}", status="failed" if name == "c" else "finished")
        result = self.brim("runs", "delete", "--where", "status=finished", status=USAGE)
        self.assert_error(result, "nothing was deleted", "2 runs", "add --yes")
        self.assertEqual([line.split()[0] for line in result.out.splitlines()], ["run", "runs/a", "runs/b"])
        self.assertEqual(len(self.names()), 3)
        for answer, left in (("n", 3), ("", 3), ("y", 1)):
            out = self.on_terminal(answer, "runs", "delete", "--where", "status=finished")
            self.assertIn("Move 2 runs to the trash? [y/N]", out)
            self.assertIn("runs/a", out)
            self.assertEqual(len(self.names()), left)
        self.brim("runs", "delete", "--where", "status=failed", "--yes")
        self.assertEqual(self.names(), [])

    def on_terminal(self, answer, *argv):
        """Returns the output of brim on a terminal, on which the user types an answer."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(BINARY, [BINARY, *argv], {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")})
        os.write(terminal, f"{answer}\n".encode())
        out = b""
        try:
            while part := os.read(terminal, 4096):
                out += part
        except OSError:  # brim has closed the terminal's other side
            pass
        os.waitpid(pid, 0)
        os.close(terminal)
        return out.decode()

    @plain
    def test_restore_finds_what_list_and_delete_find(self):
        self.make("elsewhere/deep/x y")
        self.make("multirun/s/0", status="failed")
        self.make("a")
        result = self.brim("runs", "delete", "elsewhere/deep/x y", "multirun/s/0", "a")
        self.assertIn("brim runs restore 'elsewhere/deep/x y'\n", result.out)
        for operands, listed in (((), ["a", "multirun/s/0"]), (("elsewhere",), ["elsewhere/deep/x"])):
            lines = self.brim("runs", "restore", *operands).out.splitlines()
            self.assertEqual([line.split()[0] for line in lines[1:]], listed)
        self.brim("runs", "restore", "s/0", "a")
        self.assertTrue((self.folder / "multirun/s/0").exists() and (self.folder / "a").exists())
        self.brim("runs", "restore", "elsewhere/deep/x y")
        self.assertTrue((self.folder / "elsewhere/deep/x y").exists())
        self.make("multirun/t/0")
        self.brim("runs", "delete", "multirun/s/0", "multirun/t/0")
        self.assert_error(self.brim("runs", "restore", "0", status=USAGE), "may be 'multirun/", "write more of it")

    def test_restore_where(self):
        for name in "abc":
            self.make(f"runs/{name}", status="failed" if name == "c" else "finished")
        self.make("runs/a2", seed=2)
        self.brim("runs", "delete", "runs/a", "runs/b", "runs/c", "runs/a2")
        self.assert_error(self.brim("runs", "restore", "--where", "status=finishd", status=USAGE), "character 8")
        self.brim("runs", "restore", "--where", "status=finished and name!=runs/b")
        self.assertEqual(sorted(self.names("runs")), ["a", "a2"])
        self.assertIn("no deleted run matches", self.brim("runs", "restore", "--where", "seed=77").out)
        self.make("runs/c", status="failed")
        result = self.brim("runs", "restore", "--where", "status=failed or name=b", "runs", status=USAGE)
        self.assertIn("the name is taken", result.err)
        self.assert_error(result, "1 of 2 runs were not restored")
        self.assertTrue((self.folder / "runs/b").exists())

    @plain
    def test_empty_leaves_what_brim_did_not_delete(self):
        self.make("runs/a")
        self.brim("runs", "delete", "runs/a")
        for path in ("runs/.trash/of_another_program/files/letter", "runs/.trash/20261127-101500/folder/letter",
                     "runs/.trash/20261127-101500/letter", "runs/.trash/letter"):
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text("data")
        self.make("runs/.trash/kept/b")
        self.assertIn("1 run deleted for good", self.brim("runs", "empty", "--yes").out)
        self.assertEqual(len(list((self.folder / "runs/.trash").rglob("letter"))), 4)
        self.assertTrue((self.folder / "runs/.trash/kept/b").exists())

    @plain
    def test_empty_asks_or_needs_a_word(self):
        outside = self.folder / "outside"
        outside.mkdir()
        (outside / "file").write_text("data")
        (self.make("runs/a") / "elsewhere").symlink_to(outside)
        self.make("multirun/s/0")
        self.brim("runs", "delete", "runs/a", "multirun/s/0")
        self.assert_error(self.brim("runs", "empty", status=USAGE), "add --yes")
        self.assertIn("2 runs deleted for good", self.brim("runs", "empty", "--yes").out)
        self.assertEqual(list((self.folder / "runs/.trash").iterdir()), [])
        self.assertEqual((outside / "file").read_text(), "data", "links are not followed")

    def train(self, run):
        """Makes a run with checkpoints of steps 2, 4, 6 and 8, of which 8 is `last` and 4 is `best`."""
        self.brim("train", *SMALL, "training.steps=8", "training.checkpoint_every_steps=2",
                  "training.keep_checkpoints=4", f"run.dir={run}")
        best = self.folder / run / "checkpoints/best"
        best.unlink(missing_ok=True)
        best.symlink_to("step-00000004")

    def test_prune_keeps_older_checkpoints_if_the_newest_is_damaged(self):
        self.train("runs/a")
        shutil.copytree(self.folder / "runs/a", self.folder / "runs/b", symlinks=True)
        for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
            with self.subTest(name):
                shutil.rmtree(self.folder / "runs/a")
                shutil.copytree(self.folder / "runs/b", self.folder / "runs/a", symlinks=True)
                file = self.checkpoint("runs/a", 8) / name
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 1
                file.write_bytes(data)
                result = self.brim("runs", "prune", "runs/a", "--yes")
                self.assertIn("older checkpoints are kept: ", result.err)
                self.assertIn("step-00000008", result.err)
                self.assertEqual(result.err.count("older checkpoints are kept"), 1)
                self.assertEqual(self.steps("runs/a"), [4, 6, 8], "6 is the newest that is whole")
        for step in (4, 6):
            (self.checkpoint("runs/a", step) / "model.safetensors").write_bytes(b"")
        shutil.copytree(self.checkpoint("runs/b", 2), self.checkpoint("runs/a", 2))
        self.assertIn("nothing to prune", self.brim("runs", "prune", "runs/a").out)
        self.assertEqual(self.steps("runs/a"), [2, 4, 6, 8], "only 2 is whole")

    def test_prune_keeps_best_and_last(self):
        self.train("runs/a")
        self.make("runs/b")
        self.assert_error(self.brim("runs", "prune", status=USAGE), "2 checkpoints of 1 run", "add --yes")
        self.assertEqual(self.steps("runs/a"), [2, 4, 6, 8])
        self.assertIn("nothing to prune", self.brim("runs", "prune", "--where", "name=b").out)
        self.assertIn("2 checkpoints deleted", self.brim("runs", "prune", "--yes").out)
        self.assertEqual(self.steps("runs/a"), [4, 8])

    @plain
    def test_prune_does_not_follow_a_link_to_checkpoints(self):
        run = self.make("runs/a")
        (run / "checkpoints/step-00000002").mkdir()
        shutil.rmtree(self.make("others/b") / "checkpoints")
        (self.folder / "others/b/checkpoints").symlink_to(run / "checkpoints")
        self.assert_error(self.brim("runs", "prune", "others", "--yes", status=USAGE), "is a link")
        self.assertEqual(self.steps("runs/a"), [2, 8])


class Notes(Folder):
    def setUp(self):
        super().setUp()
        self.make("runs/a")
        self.make("runs/b", seed=2, lr="2e-3", test_loss=0.75)

    def test_tags(self):
        self.brim("runs", "tag", "paper,v2", "runs/a")
        self.brim("runs", "tag", "paper", "a")
        self.assertEqual(self.json("runs/a/notes.json"), {"tags": ["paper", "v2"], "note": ""})
        self.brim("runs", "tag", "--remove", "paper", "runs/a")
        self.assertEqual(self.names("--where", "tag=v2"), ["a"])
        self.brim("runs", "tag", "v2", "--remove", "runs/a")
        self.assertFalse((self.folder / "runs/a/notes.json").exists())
        self.assertIn("2 runs changed", self.brim("runs", "tag", "both", "--where", "status=finished").out)
        self.assertEqual(len(self.names("--where", "tag=both")), 2)

    def test_bad_tags_change_nothing(self):
        for tag in ("", "a b", "a,", "a=b", "x" * 65, "a\nb", "it's"):
            with self.subTest(tag):
                self.assert_error(self.brim("runs", "tag", tag, "runs/a", status=USAGE), "tag")
        self.assert_error(self.brim("runs", "tag", "x", "nosuch", status=LOAD), "'nosuch'")
        self.assert_error(self.brim("runs", "note", "x" * 5000, "runs/a", status=USAGE), "4096")
        self.assertFalse((self.folder / "runs/a/notes.json").exists())
        for i in range(32):
            self.brim("runs", "tag", f"t{i}", "runs/a")
        self.assert_error(self.brim("runs", "tag", "more", "runs/a", status=USAGE), "32 tags")

    def test_notes_replace_a_link_instead_of_following_it(self):
        (self.folder / "victim").write_text('{"note": "old"}')
        (self.folder / "runs/a/notes.json").symlink_to(self.folder / "victim")
        self.brim("runs", "note", "new", "runs/a")
        self.assertEqual(self.read("victim"), '{"note": "old"}')
        self.assertEqual(self.json("runs/a/notes.json")["note"], "new")

    @plain
    def test_a_running_run_can_be_tagged(self):
        process = self.hold("runs/c", *SMALL)
        self.brim("runs", "tag", "live", "runs/c")
        self.assertEqual(self.names("--where", "tag=live and status=running"), ["c"])
        process.terminate()
        self.finish(process)
        self.assertEqual(self.names("--where", "tag=live and status=interrupted"), ["c"])

    def test_show(self):
        self.brim("runs", "tag", "paper", "runs/a")
        out = self.brim("runs", "show", "runs/a").out
        for text in ("runs/a", "finished", "paper", "model=mlp optimizer.lr=1e-3", "1, last: step-00000008",
                     "test_loss"):
            self.assertIn(text, out)
        self.assertEqual(self.brim("runs", "show", "a", "--json").json["runs"][0]["tags"], ["paper"])

    def test_diff(self):
        config, results = self.brim("runs", "diff", "runs/a", "runs/b").out.split("\n\n")
        self.assertEqual([line.split() for line in config.splitlines()],
                         [["key", "runs/a", "runs/b"], ["seed", "1", "2"], ["optimizer.lr", "1e-3", "2e-3"]])
        self.assertEqual([line.split() for line in results.splitlines()],
                         [["result", "runs/a", "runs/b", "difference"], ["test_loss", "0.5", "0.75", "+0.25"]])
        values = self.brim("runs", "diff", "a", "b", "--json").json
        self.assertEqual((values["config"]["seed"], values["results"]), (["1", "2"], {"test_loss": [0.5, 0.75]}))
        self.assertIn("configurations are equal", self.brim("runs", "diff", "runs/a", "runs/a").out)
        self.assert_error(self.brim("runs", "diff", "runs/a", "runs", status=LOAD), "'runs' is not the folder of a run")


class Completion(Case):
    def test_the_first_word(self):
        self.assertEqual(self.brim("complete", "--", "brim runs d").out.split(), ["diff", "delete"])


if __name__ == "__main__":
    main()
