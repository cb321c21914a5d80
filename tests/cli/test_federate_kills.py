"""A federation that is killed repeatedly at changes of its files drawn from a seed, and resumed, ends with the bytes of
an undisturbed one."""

import random
import unittest

import states
from support import FAULT_SHIM, FULL, SANITIZED, Case, killed, main

KILLS = 50 if FULL else 5
SEED = 31
WORDS = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=20",
         "dataset.classes=4", "model=lightcnn", "model.width=4", "model.norm=batch", "model.dropout=0.2",
         "federate.norm_buffers=keep", "partition=dirichlet",
         "partition.alpha=0.3", "total_clients=12", "clients_per_round=5", "rounds=24", "server_optimizer=adam",
         "training.batch_size=8", "federate.checkpoint_every_rounds=2", "memory.timing=false",
         "aggregator=qfedavg"]
# In these runs clients also keep controls, and parameters of their own.
KEEPING = [*WORDS, "federate.local=scaffold", "optimizer=sgd", "optimizer.momentum=0", "model.width=8",
           "federate.local_parameters='fc*'"]
# The clip norm is all that privacy keeps from round to round.
PRIVATE = [*(word for word in WORDS if not word.startswith("aggregator")), "model.norm=group",
           "federate.norm_buffers=average", "privacy.clip_norm=0.1", "privacy.target_quantile=0.5",
           "privacy.noise_multiplier=0.2"]
# Clients keep gradients, residuals of compression, and personal models.
FEDDYN = [*(word for word in WORDS if not word.startswith(("aggregator", "server_optimizer"))), "federate.local=feddyn"]
# Edges average their clients' models several times before a round commits.
EDGES = [*(word for word in WORDS if not word.startswith("aggregator")), "federate.norm_buffers=average",
         "federate.edges=3", "federate.edge_rounds=3", "edge_network=dynamic", "federate.local=fedprox",
         "federate.mu=0.3", "federate.compression=quantize"]
DITTO = [*WORDS, "federate.personal=ditto", "federate.compression=top_k", "federate.error_feedback=true"]


@unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
class Kills(Case):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(SEED)
        self.shim = {"LD_PRELOAD": FAULT_SHIM, "BRIM_FILES_FOLDER": str(self.folder)}

    def words(self, run, *words):
        """Returns the arguments that start the run or resume it."""
        begun = (self.folder / run / "config.yaml").exists()
        return ["federate", *(["--resume", run] if begun else [f"run.dir={run}", *words])]

    def kill(self, run, *words):
        """Starts or resumes the run, and kills it at a drawn change of its files: records, parts of a checkpoint or
        client states. Returns False if the run ended before."""
        at = self.draw.randint(1, self.changes // 2)
        result = self.brim(*self.words(run, *words), status=None, env={**self.shim, "BRIM_FILES_KILL_AT": str(at)})
        if not killed(result):
            self.assertEqual(result.status, 0, result)
        return killed(result)

    def test_a_federation_that_is_killed_again_and_again_ends_with_the_same_bytes(self):
        self.compare(WORDS, KILLS)

    def test_a_federation_whose_clients_keep_more_too(self):
        self.compare(KEEPING, KILLS)

    def test_feddyn_too(self):
        self.compare(FEDDYN, KILLS // 5)

    def test_personal_models_too(self):
        self.compare(DITTO, KILLS // 2)

    def test_a_private_federation_too(self):
        self.compare(PRIVATE, KILLS // 5)

    def test_one_with_edges_does_too(self):
        self.compare([*KEEPING, "federate.edges=3", "edge_network=dynamic"], KILLS // 5)

    def test_one_whose_edges_make_several_rounds_does_too(self):
        self.compare(EDGES, KILLS // 2)

    def test_one_with_asynchronous_rounds_does_too(self):
        words = [word for word in WORDS if not word.startswith(("aggregator", "federate.norm_buffers"))]
        self.compare([*words, "federate.async=true", "federate.concurrency=8", "federate.max_staleness=2",
                      "world.dropout=0.1"], KILLS // 2)

    def test_one_that_keeps_all_updates_of_a_round_does_too(self):
        self.compare([*WORDS, "aggregator=trimmed_mean", "attack.kind=sign_flip", "attack.share=0.2"], KILLS // 2)

    def states(self, run):
        """Returns the client states of the last checkpoint."""
        if not (self.folder / run / "states.bin").exists():
            return {}
        return {client: values.tobytes()
                for client, values in states.read(self.folder / run, self.checkpoint(run, 24), "f").items()}

    def compare(self, words, wanted):
        report = self.folder.with_suffix(".changes")
        self.addCleanup(report.unlink)
        self.brim("federate", "run.dir=whole", *words, env={**self.shim, "BRIM_FILES_REPORT": str(report)})
        self.changes = int(report.read_text())
        kills, runs = 0, 0
        while kills < wanted:
            run = f"cut{runs}"
            lanes = [f"parallel_clients={1 + runs % 2}", f"backend.threads={self.draw.randint(1, 2)}"]
            while kills < wanted and self.kill(run, *words, *lanes):
                kills += 1
            if not (self.folder / run / "summary.json").exists():
                self.brim(*self.words(run, *words, *lanes))
            with self.subTest(run=run, kills=kills):
                self.assert_same_checkpoint("whole", run, 24)
                self.assert_same_records("whole", run)
                self.assertEqual(self.states(run), self.states("whole"))
                self.assertEqual(list((self.folder / run).glob("updates*")), [])
            runs += 1


if __name__ == "__main__":
    main()
