"""Tests brim check: its verdicts on good and bad plugins, and on plugin files whose bytes were changed. Whatever the
file contains, the program itself must end with one of its own exit statuses."""

import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import unittest

from support import (BINARY, DONE, FAILED, FULL, HANG_SECONDS, LOAD, SANITIZED, USAGE, Case, fewer_of, main, plain,
                     some_of)

KINDS = "policy", "model", "dataset", "selector", "aggregator", "optimizer", "schedule", "loss", "augment"
BAD = pathlib.Path(os.environ["BRIM_BAD_PLUGINS"])
ABI = pathlib.Path(os.environ["BRIM_ABI_PLUGINS"])
SHIPPED = pathlib.Path(BINARY).parent.parent / "lib" / "brim" / "plugins"
MUTATIONS = int(os.environ.get("BRIM_CHECK_MUTATIONS", "12"))
CRASHED = "exit status 1" if SANITIZED else "SIGSEGV"  # a sanitizer ends the process itself
unsanitized = unittest.skipIf(SANITIZED, "a sanitizer has handlers and limits of its own")


class Check(Case):
    def check(self, file, *words, status=DONE, bad=None):
        return self.brim("check", file, *words, status=status, env={"BRIM_BAD": bad} if bad else None)

    def findings(self, file, *words, status=DONE, bad=None):
        """Returns {check: (finding, text)}."""
        report = self.check(file, *words, "--json", status=status, bad=bad).json
        return {check["check"]: (check["finding"], check["text"]) for check in report["checks"]}

    faults = 0  # number of faults that the test has asked for

    def assert_fails(self, kind, bad, check, *parts):
        """Asserts what the check of a fault finds. Under a sanitizer only every third fault of a test is checked,
        because all run the same code; the full tier checks all."""
        self.faults += 1
        if SANITIZED and not FULL and self.faults % 3 != 1:
            return
        found = self.findings(BAD / kind / "bad.so", status=FAILED, bad=bad)
        self.assertEqual(found[check][0], "failed", found)
        for part in parts:
            self.assertIn(part, found[check][1])


class Good(Check):
    def test_the_policies_that_are_shipped(self):
        for file in some_of(sorted((SHIPPED / "policy").glob("*.so")), 4):
            with self.subTest(file.name):
                result = self.check(file)
                self.assertIn("brim would run it\n", result.out)
                self.assertNotIn("warning", result.out)

    def test_the_selectors_that_are_shipped(self):
        files = sorted((SHIPPED / "selector").glob("*.so"))
        self.assertGreater(len(files), 1)
        for file in some_of(fewer_of(files, 2), 9, 3):
            with self.subTest(file.name):
                found = self.findings(file)
                self.assertEqual(list(found), ["table", "create", "state", "select", "repeats", "resumes", "time",
                                               "memory", "parameters"])
                self.assertEqual({finding for check, (finding, _) in found.items() if check != "time"}, {"ok"}, found)
                self.assertRegex(found["select"][1], r"each at most once: 21 rounds of \d\d federations")
                self.assertRegex(found["time"][1], r"^a selection takes at most [\d.]+ ms of 1000 clients")

    def test_models_and_datasets(self):
        self.assertIn("takes images [1,28,28]", self.findings(SHIPPED / "model" / "cnn.so")["build"][1])
        self.assertIn("takes tokens [32]", self.findings(SHIPPED / "model" / "gpt2.so")["build"][1])
        self.assertIn("takes tokens [32]", self.findings(SHIPPED / "model" / "lora.so")["build"][1])
        found = self.findings(SHIPPED / "dataset" / "synthetic.so", "dataset.train_count=300")
        self.assertIn("300 of train", found["open"][1])
        self.assertEqual([found[check][0] for check in ("table", "open", "read", "threads")], ["ok"] * 4)
        self.assertEqual([found[check][0] for check in ("host_bytes", "open_file")], ["ok"] * 2)

    def test_of_backends_the_table(self):
        self.assertEqual(list(self.findings(SHIPPED / "backend" / "cpu.so")), ["table"])

    def test_a_data_set_without_files_gets_a_warning(self):
        found = self.findings(SHIPPED / "dataset" / "idx.so")
        self.assertEqual(found["open"][0], "warning")
        self.assertIn("dataset.path", found["open"][1])
        self.assertNotIn("read", found)

    @plain
    def test_the_bad_plugins_pass_by_default(self):
        for kind in KINDS:
            self.check(BAD / kind / "bad.so")

    def test_time_passes_between_questions(self):
        found = self.findings(BAD / "policy" / "bad.so", bad="on_step:rarely")
        finding, text = found["on_step"]
        decided, asked = re.match(r"decided (\d+) of (\d+) times", text).groups()
        self.assertEqual(finding, "ok")
        self.assertGreater(int(decided), int(asked) // 3)

    @plain
    def test_a_policy_that_goes_back_and_forth_is_noticed(self):
        finding, text = self.findings(BAD / "policy" / "bad.so", bad="on_step:rarely")["settles"]
        self.assertEqual(finding, "warning")
        self.assertRegex(text, r"^oscillates while nothing changes: [5-9] times in 240 s")
        self.assertEqual(self.findings(SHIPPED / "policy" / "elastic.so")["settles"][0], "ok")


class Bad(Check):
    def test_policies(self):
        for bad, check, part in (("create:segv", "create", "crashed in create"), ("create:exit", "create", "exit()"),
                                 ("destroy:segv", "create", "destroy"),
                                 ("choose_device:device", "choose_device", "chose device"),
                                 ("choose_plan:abort", "choose_plan", "SIGABRT"),
                                 ("choose_plan:zero", "choose_plan", "micro-batch 0"),
                                 ("choose_plan:reason", "choose_plan", "returned an unterminated reason"),
                                 ("on_oom:again", "on_oom", "that has just failed"),
                                 ("on_boundary:kind", "on_boundary", "kind 77"),
                                 ("on_step:loop", "on_step", "did not return")):
            with self.subTest(bad):
                self.assert_fails("policy", bad, check, part)

    def test_selectors(self):
        for bad, check, part in (("create:segv", "create", "crashed in create"), ("create:exit", "create", "exit()"),
                                 ("state:huge", "state", "asks for a state of"),
                                 ("state:negative", "state", "asks for a state of 1 numbers, and -1 for each client"),
                                 ("select:segv", "select", "crashed in select"),
                                 ("select:loop", "select", "did not return from select"),
                                 ("select:unknown", "select", "which is not a status"),
                                 ("learn:segv", "select", "crashed in learn"),
                                 ("select:twice", "select", "twice in round 3"),
                                 ("select:away", "select", "in round 3, which is not among"),
                                 ("select:stranger", "select", "in round 3; there are"),
                                 ("select:none", "select", "selected 0 clients in round 3"),
                                 ("select:many", "select", "it must select 1 to"),
                                 ("select:pointer", "select", "replaced the pointer `client`"),
                                 ("select:past", "select", "writes past the end of of_client in select"),
                                 ("select:column", "select", "writes to clients.loss in select"),
                                 ("select:losses", "select", "BRIM_NEED_LOSSES"),
                                 ("select:moves", "repeats", "gives another answer to the same query"),
                                 ("learn:keeps", "resumes", "keeps state outside of `own` and `of_client`")):
            with self.subTest(bad):
                self.assert_fails("selector", bad, check, part)

    def test_aggregators(self):
        for bad, part in (("weigh:segv", "crashed in weigh"),
                          ("weigh:loop", "did not return from weigh"), ("weigh:unknown", "which is not a status"),
                          ("weigh:fails", "failed in weigh: this policy does not want to"),
                          ("weigh:notsup", "returned BRIM_ENOTSUP"),
                          ("weigh:below", "gave client 2 the weight -1 in round 3"),
                          ("weigh:nan", "the weight nan in round 3"),
                          ("weigh:nothing", "the weights of aggregator 'bad' add up to 0 in round 3"),
                          ("weigh:moves", "gives another result when it is called again"),
                          ("scale:exit", "exit"), ("scale:below", "gave client 2 the divisor -1 and the factor 1"),
                          ("scale:infinite", "and the factor inf in round 3"),
                          ("scale:nothing", "divides the sum of updates by")):
            with self.subTest(bad):
                self.assert_fails("aggregator", bad, "rounds", part)
        for bad, part in (("merge:nan", "gave value 39 of the update nan in round 3"),
                          ("merge:moves", "gives another result when it is called again"),
                          ("merge:loop", "did not return from merge"),
                          ("look:fails", "failed in look: this policy does not want to")):
            with self.subTest(bad):
                self.assert_fails("../bad_whole/aggregator", bad, "rounds", part)

    def test_optimizers(self):
        for bad, check, part in (("step:nan", "step", "optimizer 'bad': 'keep' is nan in step 2"),
                                 ("step:segv", "step", CRASHED),
                                 ("step:impure", "step", "when it is computed again"),
                                 ("form:name", "update", "unknown name 'decays'"),
                                 ("form:shape", "update", "gives the state 'momentum' the shape [1]"),
                                 ("form:dtype", "update", "must not change dtype and block of the state 'momentum'"),
                                 ("form:block", "update", "must not change dtype and block of the state 'momentum'"),
                                 ("form:states", "update", "declares 5 states and 1 numbers: at most 4 and 8"),
                                 ("form:unnamed", "update", "gives state 1 no name"),
                                 ("form:none", "update", "sets formula to NULL, but ops.build is NULL too"),
                                 ("form:op", "update", "sets op, which only brim's own optimizers may")):
            with self.subTest(bad):
                self.assert_fails("optimizer", bad, check, part)

    def test_schedules(self):
        for bad, part in (("nan:700", "schedule 'bad': the factor of step 700 of 10000 is nan"),
                          ("negative:90", "the factor of step 90 of 100 is -0.5: it must be finite and not negative"),
                          ("infinite:0", "the factor of step 0 of 1 is inf"), ("segv:5", CRASHED),
                          ("impure:0", "when it is computed again: it must depend on its arguments alone")):
            with self.subTest(bad):
                self.assert_fails("schedule", f"factor:{bad}", "factor", part)
        found = self.findings(BAD / "schedule" / "bad.so", status=LOAD, bad="table:factor")
        self.assertIn("ops.factor is NULL, but a schedule needs it", found["table"][1])

    def test_losses(self):
        for bad, check, part in (("segv", "build", CRASHED),
                                 ("none", "build", "loss 'bad': the plugin returned no tensor and gave no reason"),
                                 ("elements", "build", "must return one real number for each sample, [64]; got"),
                                 ("target", "build", "'sum' does not depend on the model's output\n"),
                                 ("parameter", "build", "it makes the parameter 'own.weight': only models may"),
                                 ("name", "build", "unknown name 'unknown'\n"),
                                 ("shapes", "build", "the tensors must have the same shape, got [64, 10] after "
                                                     "[64, 1]\n"),
                                 ("count", "build", "the graph for 2 samples differs from that for 1"),
                                 ("step", "gradient", "the gradient is 0 everywhere: the model would learn nothing"),
                                 ("nan", "gradient", "nan for outputs up to 0.5")):
            with self.subTest(bad):
                self.assert_fails("loss", f"build:{bad}", check, part)
        for bad, part in (("build", "ops.build is NULL, but a loss needs it"), ("takes", "ops.takes is 0x0"),
                          ("kernel", "ops.kernel is for brim's own losses")):
            with self.subTest(bad):
                found = self.findings(BAD / "loss" / "bad.so", status=LOAD, bad=f"table:{bad}")
                self.assertIn(part, found["table"][1])

    def test_augmentations(self):
        first = "sample 7 of shape [1, 28, 28]"
        for bad, part in (("nan:7", f"{first}: value 2 becomes nan: values must stay finite"),
                          ("past:7", f"{first}: writes outside of the sample's values, 0 bytes after"),
                          ("before:7", f"{first}: writes outside of the sample's values, 1 bytes before"),
                          ("scratch:7", f"{first}: writes outside of the scratch, 0 bytes after"),
                          ("partner:7", f"{first}: changes the partner's values"),
                          ("share:7", f"{first}: share is 1.5: it must be 0 to 1"),
                          ("shape:7", f"{first}: changes the sample's shape"), ("segv:7", CRASHED),
                          ("impure:7", "sample 59 of shape [1, 28, 28] differs when it is augmented again")):
            with self.subTest(bad):
                self.assert_fails("augment", f"apply:{bad}", "apply", part)
        for bad, part in (("apply", "ops.apply is NULL"), ("dtype", "must be BRIM_DTYPE_U8 or BRIM_DTYPE_F32")):
            found = self.findings(BAD / "augment" / "bad.so", status=LOAD, bad=f"table:{bad}")
            self.assertIn(part, found["table"][1])

    def test_an_optimizers_description(self):
        for bad, part in (("unknown", "line 2, column 9 of the formula: unknown name 'rate'"),
                          ("unset", "the formula gives 'momentum' no new value"), ("none", "ops.formula is NULL"),
                          ("step", "ops.step is NULL"), ("states", "ops has 5 states and 3 scalars: at most 4 and 16"),
                          ("kernel", "ops.kernel is for brim's own optimizers"), ("create", "create must be NULL")):
            with self.subTest(bad):
                found = self.findings(BAD / "optimizer" / "bad.so", status=LOAD, bad=f"table:{bad}")
                self.assertEqual(found["table"][0], "failed")
                self.assertIn(part, found["table"][1])

    def test_a_selectors_failure_is_located(self):
        found = self.findings(BAD / "selector" / "bad.so", status=FAILED, bad="select:away")
        self.assertRegex(found["select"][1], r"in a synthetic federation of \d+ clients with \d+ classes, \d+ of them "
                                             r"available and \d+ wanted, in round 3$")
        self.assertEqual(found["parameters"], ("warning", "not tried: an earlier check failed"))

    @plain
    def test_a_selector_that_is_slow_in_large_federations_is_only_warned_of(self):
        finding, text = self.findings(BAD / "selector" / "bad.so", bad="select:slow")["time"]
        self.assertEqual(finding, "warning")
        self.assertRegex(text, "ms of 10000 clients; of 100000 clients: .* did not return from select")

    def test_a_selector_can_refuse_with_its_own_message(self):
        found = self.findings(BAD / "selector" / "bad.so", status=FAILED, bad="select:fails")
        self.assertIn("rejects all 40 synthetic federations, the first with: this policy does not want to",
                      found["select"][1])

    @unsanitized
    def test_datasets_and_models(self):
        for kind, bad, check, part in (("dataset", "create:segv", "open", "crashed: segmentation fault"),
                                       ("dataset", "describe:none", "open", "0 classes"),
                                       ("dataset", "read:segv:3", "read", "crashed: segmentation fault"),
                                       ("dataset", "read:exit", "read", "ended the process"),
                                       ("dataset", "read:xcpu", "read", "its limit of processor time"),
                                       ("dataset", "read:past", "read", "writes past the end of its values"),
                                       ("dataset", "read:label", "read", "label 9"),
                                       ("dataset", "read:moves", "threads", "several threads"),
                                       ("dataset", "host_bytes:segv", "host_bytes", "crashed: segmentation fault"),
                                       ("dataset", "host_bytes:more", "host_bytes",
                                        "1 bytes kept by split train, and 2"),
                                       ("dataset", "open_file:segv", "open_file", "crashed: segmentation fault"),
                                       ("dataset", "open_file:takes", "open_file", "which does not exist"),
                                       ("model", "build:stack", "build", "crashed: segmentation fault"),
                                       ("model", "build:mute", "build", "named no output"),
                                       ("model", "build:odd", "build", "cannot be built for any of the samples"),
                                       ("model", "build:moves", "build", "the graph differs when")):
            with self.subTest(kind=kind, bad=bad):
                self.assert_fails(kind, bad, check, part)

    def test_checks_continue_after_a_crash(self):
        found = self.findings(BAD / "policy" / "bad.so", status=FAILED, bad="choose_plan:segv")
        self.assertEqual([check for check, (finding, _) in found.items() if finding == "failed"], ["choose_plan"])
        self.assertEqual([found[check][0] for check in ("on_oom", "on_boundary", "on_step")], ["ok"] * 3)
        for check in ("repeats", "memory", "parameters"):
            self.assertEqual(found[check][0], "warning")
            self.assertIn("not tried: an earlier check failed", found[check][1])

    @unsanitized
    def test_a_plugins_child_does_not_hide_its_crash(self):
        self.assert_fails("dataset", "read:helper", "read", "crashed: segmentation fault")
        self.assert_fails("policy", "on_step:helper", "on_step", "crashed")

    @unsanitized
    def test_the_end_of_a_child_is_known_even_if_sigchld_is_ignored(self):
        process = self.start("check", BAD / "dataset" / "bad.so", env={"BRIM_BAD": "read:segv:3"},
                             ignoring=signal.SIGCHLD)
        self.assertIn("crashed: segmentation fault", self.finish(process, FAILED).out)

    @unsanitized
    def test_advice_about_crashes(self):
        for kind, bad, check in (("policy", "on_step:segv", "on_step"), ("dataset", "read:segv:3", "read")):
            with self.subTest(kind):
                file = BAD / kind / "bad.so"
                text = self.findings(file, status=FAILED, bad=bad)[check][1]
                self.assertRegex(text, re.escape(f"addr2line -f -e {file} 0x") + "[0-9a-f]+")
        found = self.findings(ABI / "table_endless.so", status=LOAD)
        self.assertIn("does each table of parameters end in BRIM_PARAMS_END", found["table"][1])
        result = self.brim("plugins", "--plugin-path", ABI / "table_endless.so", status=None)
        self.assertNotEqual(result.status, 0)
        self.assertIn("table_endless.so: does each table of parameters end in BRIM_PARAMS_END?", result.err)

    def test_folders(self):
        result = self.check(BAD, status=USAGE)
        self.assert_error(result, "is a folder", *(f"brim check {BAD}/{kind}/bad.so"
                                                   for kind in KINDS))
        (self.folder / "empty").mkdir()
        self.assert_error(self.check("empty", status=USAGE), "no plugin's file (*.so) is in it")

    def test_files_that_cannot_be_loaded(self):
        for name, part in (("id_bad", "id must be"), ("abi_newer", "another version of the SDK"),
                           ("symbol", "needs the symbol"), ("twice", "is listed twice")):
            with self.subTest(name):
                result = self.check(ABI / f"{name}.so", status=LOAD)
                self.assertIn(part, result.out)
                self.assertIn("brim would not load it\n", result.out)
        (self.folder / "text.so").write_text("no plugin")
        self.assertIn("ELF header", self.check("text.so", status=LOAD).out)
        self.assert_error(self.check("gone.so", status=LOAD), "gone.so", "No such file")

    def test_plugins_that_another_needs_come_with_plugin_path(self):
        found = self.brim("--plugin-path", BAD, "check", SHIPPED / "policy" / "robust.so", "model=bad",
                          "--json").json
        self.assertEqual((found["failed"], found["warnings"]), (0, 0))
        self.brim("--plugin-path", BAD / "policy" / "bad.so", "check", BAD / "policy" / "bad.so")

    @plain
    def test_no_word_is_dropped(self):
        words = ["training.steps=2"] * 300
        self.check(SHIPPED / "policy" / "robust.so", *words)
        self.assert_error(self.check(SHIPPED / "policy" / "robust.so", *words, "training.stps=2", status=USAGE),
                          "argument 302")

    @plain
    def test_words_of_the_configuration(self):
        for file, word, part in (("policy/capped.so", "policy.capped.shaers=3", "unknown key 'policy.capped.shaers'"),
                                 ("policy/capped.so", "policy=gone", "no option 'gone'"),
                                 ("policy/robust.so", "traning.epochs=3", "command line, argument 2"),
                                 ("model/cnn.so", "model.dropout1=3", "'model.dropout1' must be in"),
                                 ("dataset/synthetic.so", "dataset.train_count=-3", "must be in"),
                                 ("dataset/idx.so", "dataset.pth=data", "unknown key 'dataset.pth'"),
                                 (BAD / "optimizer" / "bad.so", "optimizer.rate=3", "unknown key 'optimizer.rate'"),
                                 (BAD / "schedule" / "bad.so", "training.stps=2", "command line, argument 2"),
                                 (BAD / "loss" / "bad.so", "training.stps=2", "command line, argument 2"),
                                 (BAD / "augment" / "bad.so", "training.stps=2", "command line, argument 2")):
            with self.subTest(f"{file} {word}"):
                self.assert_error(self.check(SHIPPED / file, word, status=USAGE), part)

    @plain
    def test_words(self):
        self.assert_error(self.check("--jsn", status=USAGE), "did you mean '--json'")
        self.assert_error(self.brim("check", status=USAGE), "brim check mine.so")
        self.assert_error(self.check("--child", "x", status=USAGE), "for brim itself")


def mutate(whole, draw):
    """Returns a plugin's bytes after damage of a kind that occurs by accident or by attack."""
    data = bytearray(whole)
    sections = struct.unpack_from("<Q", data, 0x28)[0]
    kind = draw.randrange(7)
    if kind == 0:  # truncation
        return bytes(data[:draw.randrange(len(data))])
    if kind == 1:  # the ELF header
        at, count = draw.randrange(64), draw.randrange(1, 9)
    elif kind == 2:  # program headers
        at, count = 64 + draw.randrange(56 * 11), draw.randrange(1, 9)
    elif kind == 3:  # dynamic symbols, strings, relocations: at the start of the file
        at, count = 64 + draw.randrange(0x1000), draw.randrange(1, 17)
    elif kind == 4:  # section headers
        at, count = min(sections, len(data) - 1) + draw.randrange(64), draw.randrange(1, 9)
    elif kind == 5:  # tables: pointers, sizes, and the targets of relocations
        name = data.find(b"BRIM") if draw.randrange(2) else len(data) - draw.randrange(1, 0x3000)
        at, count = max(0, name), draw.randrange(1, 65)
    else:
        at, count = draw.randrange(len(data)), draw.randrange(1, 257)
    for i in range(at, min(at + count, len(data))):
        data[i] = draw.choice((0, 0xff, draw.randrange(256), data[i] ^ (1 << draw.randrange(8))))
    return bytes(data)


class Mutated(Check):
    """BRIM_CHECK_MUTATIONS=5000 BRIM_BINARY=build/release/bin/brim python3 tests/cli/test_check.py Mutated"""

    @unsanitized
    def test_any_bytes(self):
        seeds = [(BAD / kind / "bad.so").read_bytes()
                 for kind in KINDS]
        found = {}
        for number in range(MUTATIONS):
            draw = random.Random(number)
            file = self.folder / "mutated.so"
            file.unlink(missing_ok=True)  # a new file, as the old one may still be mapped
            file.write_bytes(mutate(seeds[number % len(seeds)], draw))
            result = self.check(file, "--json", status=None)
            self.assertIn(result.status, (DONE, LOAD, FAILED), f"mutation {number}: {result}")
            report = json.loads(result.out)
            self.assertTrue(report["checks"], f"mutation {number}: {result}")
            what = "loaded" if report["loaded"] else report["checks"][-1]["text"].split(":")[0].split(" at ")[0]
            found[what] = found.get(what, 0) + 1
            if MUTATIONS > 100:  # brim itself may crash when it loads the same bytes; only `brim check` must not
                loaded = self.load(file)
                found[loaded] = found.get(loaded, 0) + 1
        if MUTATIONS > 100:
            for what, count in sorted(found.items(), key=lambda item: -item[1])[:40]:
                print(f"{count:6} {what[:100]}")

    def load(self, file):
        try:
            result = subprocess.run([BINARY, "plugins", f"--plugin-path={file}"], cwd=self.folder,
                                    timeout=HANG_SECONDS, check=False, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except subprocess.TimeoutExpired:
            return "brim plugins: does not come back"
        if result.returncode >= 0:
            return f"brim plugins: exit status {result.returncode}"
        return "brim plugins: a signal" + (", and it says so" if b"has crashed" in result.stderr else "")


if __name__ == "__main__":
    main()
