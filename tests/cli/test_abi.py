"""Tests binary compatibility: plugins built for older versions, and the symbols of libbrim.so."""

import pathlib
import platform
import re
import shutil
import subprocess
import unittest

from support import BINARY, SANITIZED, Case, main

ABI = pathlib.Path(__file__).resolve().parent.parent / "abi"
KEPT = ["--plugin-path", ABI / "kept"]
RUN = ["model=kept", "dataset=kept", "policy=kept", "training.batch_size=auto", "training.effective_batch_size=64",
       "dataset.count=128", "training.epochs=30", "optimizer.lr=0.01", "model.dropout=0", "backend.threads=1",
       "memory.timing=false", "run.dir=run"]


@unittest.skipUnless(platform.machine() == "x86_64", "the kept plugins are for x86-64")
class Kept(Case):
    """tests/abi/kept: a model and a data set built for ABI 1.0, and a policy built for 1.3."""

    def test_they_are_listed_with_their_abi(self):
        for name, abi in (("model/kept", "1.0"), ("dataset/kept", "1.0"), ("policy/kept", "1.3")):
            self.assertRegex(self.brim(*KEPT, "plugins", name).out, rf"(?m)^  module .*, abi {abi}\n")
        self.assertEqual(self.brim(*KEPT, "plugins", "--json").json["failures"], [])

    def test_they_train_together(self):
        result = self.brim(*KEPT, "train", *RUN)
        self.assertIn("policy.kept: micro-batch 16 x 4: 16 of 64 samples of kept on cpu:0", result.err)
        self.assertIn("light cleanup: 60 steps have ended", result.err)
        report = self.brim(*KEPT, "eval", "run", "--json").json
        self.assertGreater(report["accuracy"], 0.9)
        self.assertIn("second", self.brim(*KEPT, "eval", "run").out)

    def test_their_parameters_are_checked(self):
        result = self.brim(*KEPT, "plan", *RUN, "model.width=65", status=2)
        self.assertIn("model.width", result.err)
        plan = self.brim(*KEPT, "plan", *RUN, "model.hidden=[3]", "--json").json
        # convolution, norm, 128 values to 3, 3 values to 4 classes
        self.assertEqual(plan["parameters"], (9 + 1) * 8 + 2 * 8 + (128 + 1) * 3 + (3 + 1) * 4)


@unittest.skipUnless(shutil.which("readelf"), "readelf is not here")
class Symbols(Case):
    def test_the_library_exports_the_listed_symbols(self):
        library = pathlib.Path(BINARY).parent.parent / "lib" / "libbrim.so.0"
        text = subprocess.run(["readelf", "--dyn-syms", "--wide", library], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        # number, value, size, type, binding, visibility, section, name
        rows = [line.split() for line in text.splitlines() if re.match(r" *\d+:", line)]
        exported = {row[7] for row in rows if len(row) > 7 and row[5] == "DEFAULT" and row[6] != "UND"}
        listed = [line for line in (ABI / "symbols.txt").read_text().splitlines() if line and line[0] != "#"]
        if SANITIZED:  # a sanitized libbrim exports all functions, because tests of internals link it
            exported &= set(listed)
        self.assertEqual(len(listed), len(set(listed)), "a symbol is listed twice")
        self.assertEqual(sorted(set(listed) - exported), [],
                         "symbols are gone, which programs and plugins for libbrim.so.0 need")
        self.assertEqual(sorted(exported - set(listed)), [],
                         "symbols are new: those of brim/*.h come to the end of tests/abi/symbols.txt, others are "
                         "hidden")


if __name__ == "__main__":
    main()
