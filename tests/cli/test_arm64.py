"""Tests whole runs for aarch64 in qemu, with vectors of each length. Only a build for another machine has this test:
$BRIM_BINARY calls the emulator, and $QEMU_CPU chooses the processor."""

import math

from support import NO_FIT, SMALL, SMALL_CNN, Case, main

PROCESSORS = {"neon": "max,sve=off", "sve256": "max,sve256=on,sve512=off", "sve512": "max,sve512=on"}
STEPS = 4
GRAIN = ["training.grain=16", f"training.steps={STEPS}", "training.checkpoint_every_steps=2", "schedule=constant"]


class Arm64(Case):
    def run_on(self, isa, run, *words):
        self.train(run, *words, *GRAIN, "backend=cpu", env={"QEMU_CPU": PROCESSORS[isa]})
        return self.summary(run)

    def check(self, *words):
        """Checks that each instruction set gives the same bits for every split of a step and after a resume, and that
        all of them give about the same loss."""
        losses = []
        for isa in PROCESSORS:
            whole = self.run_on(isa, isa, *words, f"backend.isa={isa}")
            cut = self.run_on(isa, f"cut-{isa}", *words, "backend.threads=3", "training.batch_size=32",
                              "training.gradient_accumulation_steps=4")
            self.assert_same_checkpoint(isa, f"cut-{isa}", STEPS)
            self.assertEqual(whole["test_loss"], cut["test_loss"])
            losses.append(whole["test_loss"])
        for loss in losses:
            self.assertTrue(math.isclose(loss, losses[0], rel_tol=1e-4), losses)

    def test_mlp(self):
        self.check(*SMALL)

    def test_cnn(self):
        self.check(*SMALL_CNN)

    def test_a_stopped_run_continues_with_the_same_bits(self):
        env = {"QEMU_CPU": PROCESSORS["neon"]}
        self.run_on("neon", "whole", *SMALL)
        self.train("part", *SMALL, *GRAIN, "backend=cpu", env={**env, "BRIM_FAULT": "step:3:begin:1+"}, status=NO_FIT)
        self.assertEqual(self.steps("part"), [2])
        self.brim("train", "--resume", "part", env=env)
        self.assert_same_checkpoint("whole", "part", STEPS)

    def test_a_set_that_the_processor_lacks(self):
        result = self.train("run", *SMALL, "backend=cpu", "backend.isa=sve256", env={"QEMU_CPU": PROCESSORS["neon"]},
                            status=None)
        self.assert_error(result, "backend.isa=sve256: this process has vectors of 128 bits, so only neon")


if __name__ == "__main__":
    main()
