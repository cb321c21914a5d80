"""Tests federations: rounds of clients on one device. The result has the same bits for every number of clients that
train at a time, and equals federated averaging in double precision, computed here by plain loops."""

import collections
import math
import os
import random
import struct
import xml.etree.ElementTree as xml

import states
import tensors
from federations import FederationCase
from support import FAILED, NO_FIT, USAGE, fewer_of, main, plain, some_of, write_idx_dataset

SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=40",
         "dataset.classes=4", "total_clients=12", "clients_per_round=5", "rounds=4",
         "federate.checkpoint_every_rounds=2", "memory.timing=false"]
MLP = [*SMALL, "model=mlp", "model.hidden=[9]"]
# Kinds of federations, which together have norms with buffers, dropout, several epochs, remainders of many sizes, and
# server optimizers.
KINDS = {
    "mlp": [*MLP, "training.batch_size=8"],
    "batch norm": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "model.dropout=0.2",
                   "partition=shards", "server_optimizer=adam"],
    "dirichlet": [*SMALL, "model=lightcnn", "model.width=4", "partition=dirichlet", "partition.alpha=0.2",
                  "training.batch_size=16", "federate.local_epochs=2", "server_optimizer=yogi", "optimizer=adamw",
                  "optimizer.lr=1e-3"],
    "remainders": [*MLP, "partition=dirichlet", "partition.alpha=0.3", "training.batch_size=64", "total_clients=20",
                   "federate.remainder=keep", "training.clip_norm=0.5", "server_optimizer=adagrad"],
    "fedprox": [*SMALL, "model=lightcnn", "model.width=4", "partition=dirichlet", "partition.alpha=0.2",
                "training.batch_size=8", "federate.local=fedprox", "federate.mu=0.3", "precision=bf16"],
    "kept norms": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                   "partition.alpha=0.5", "training.batch_size=8", "federate.local_epochs=2",
                   "federate.norm_buffers=keep", "method=power_of_choice", "method.d=9"],
    "local parameters": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                         "partition.alpha=0.5", "training.batch_size=8", "federate.local=fedprox", "federate.mu=0.3",
                         "federate.local_parameters='fc* norm2.*'", "method=divfl", "server_optimizer=adam"],
    "scaffold": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                 "partition.alpha=0.5", "training.batch_size=8", "federate.local=scaffold_fedprox", "federate.mu=0.3",
                 "optimizer=sgd", "optimizer.momentum=0", "federate.norm_buffers=keep"],
    "feddyn": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
               "partition.alpha=0.5", "training.batch_size=8", "federate.local=feddyn", "federate.alpha=0.1",
               "federate.local_epochs=2", "federate.local_parameters='fc*'"],
    "ditto": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "model.dropout=0.2",
              "partition=dirichlet", "partition.alpha=0.5", "training.batch_size=8", "federate.norm_buffers=keep",
              "federate.personal=ditto", "federate.personal_epochs=2", "federate.compression=sign",
              "federate.error_feedback=true"],
    "median": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
               "partition.alpha=0.5", "training.batch_size=8", "aggregator=median", "server_optimizer=adam",
               "attack.kind=noise", "attack.share=0.3", "attack.scale=0.1"],
    "krum": [*MLP, "partition=dirichlet", "training.batch_size=8", "aggregator=multi_krum", "aggregator.chosen=2",
             "method=divfl", "attack.kind=label_flip", "attack.share=0.2"],
    "central noise": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=group", "partition=dirichlet",
                      "partition.alpha=0.5", "privacy.clip_norm=0.1", "privacy.target_quantile=0.5",
                      "privacy.noise_multiplier=0.3", "privacy.delta=1e-3"],
    "local noise": [*MLP, "privacy.clip_norm=0.1", "privacy.noise=local", "privacy.noise_multiplier=0.1",
                    "world.dropout=0.2"],
    "qfedavg": [*MLP, "training.batch_size=8", "partition=dirichlet", "partition.alpha=0.5", "aggregator=qfedavg",
                "federate.local_epochs=2", "world.dropout=0.2", "federate.compression=top_k",
                "federate.compression_share=0.2", "federate.error_feedback=true"],
    "fednova": [*MLP, "training.batch_size=8", "partition=dirichlet", "partition.alpha=0.5", "aggregator=fednova",
                "optimizer.momentum=0.5", "server_optimizer=adam", "federate.compression=sign"],
    "edge rounds": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                    "partition.alpha=0.5", "training.batch_size=8", "federate.edges=3", "federate.edge_rounds=3",
                    "federate.local=fedprox", "federate.mu=0.3", "federate.compression=quantize",
                    "edge_network=dynamic", "world.dropout=0.2", "server_optimizer=adam", "method=divfl"],
    "async": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
              "partition.alpha=0.5", "training.batch_size=8", "federate.async=true", "federate.concurrency=9",
              "federate.max_staleness=1", "world.speed_sigma=2", "server_optimizer=adam", "method=divfl"],
    "async mlp": [*MLP, "training.batch_size=8", "federate.async=true", "federate.concurrency=6", "network=dynamic",
                  "aggregator=fednova", "federate.compression=quantize", "world.dropout=0.2"],
    "quantized": [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                  "partition.alpha=0.5", "training.batch_size=8", "federate.norm_buffers=keep",
                  "federate.compression=quantize", "federate.compression_bits=4", "federate.error_feedback=true",
                  "precision=bf16"],
}

# Files that are equal in the checkpoints of runs whose settings must not change a bit.
STATE = ["model.safetensors", "optimizer.safetensors"]


class Federate(FederationCase):
    def whole(self, name):
        """Returns the folder of an undisturbed run of a kind, in which clients train one after another."""
        run = self.shared / name
        if not run.exists():
            self.federate(run, *KINDS[name], "parallel_clients=1", "backend.threads=1")
        return run

    # ---- the same bits ----

    def test_clients_at_a_time_and_threads_change_no_bit(self):
        for number, (name, words) in some_of(enumerate(KINDS.items()), 2, 1):  # other kinds are tested by resuming them
            with self.subTest(name):
                whole = self.whole(name)
                for lanes, threads in fewer_of([(3, 1), (2, 2), (-1, 2)], 3, number % 3):
                    run = f"{name} {lanes} {threads}"
                    self.federate(run, *words, f"parallel_clients={lanes}", f"backend.threads={threads}")
                    self.assert_same_checkpoint(whole, run, 4)
                    self.assert_same_records(whole, run)
                    self.assert_same_client_accuracy(whole, run)

    def test_a_resumed_federation_ends_with_the_same_bytes(self):
        for name, words in some_of(KINDS.items(), 2, 4):
            with self.subTest(name):
                self.federate(f"{name} cut", *words, status=NO_FIT, env={"BRIM_FAULT": attempts(4, 12)})
                self.assertEqual(max(self.steps(f"{name} cut")), 3)
                self.brim("federate", "--resume", f"{name} cut")
                self.assert_same_checkpoint(self.whole(name), f"{name} cut", 4)
                self.assert_same_client_accuracy(self.whole(name), f"{name} cut")

    def assert_same_client_accuracy(self, run, other):
        for key in "mean", "variance", "gini":
            self.assertEqual(self.summary(run)[f"client_accuracy_{key}"],
                             self.summary(other)[f"client_accuracy_{key}"])

    def test_a_round_that_runs_out_of_memory_is_made_again(self):
        for name in "mlp", "krum", "async mlp":
            self.federate(f"{name} faulty", *KINDS[name], "parallel_clients=2",
                          env={"BRIM_FAULT": attempts(3, 4)})
            self.assert_same_checkpoint(self.whole(name), f"{name} faulty", 4)
            self.assertTrue(any("1 client at a time" in choice for choice in self.recoveries(f"{name} faulty")))

    def test_only_clients_that_failed_are_trained_again(self):
        """Even if rounds fail so often that the plan changes meanwhile, only the failed clients train again. The
        test counts clients when they begin."""
        changes = ["client:3", "begin:2", "begin:3", "begin:4"]
        names = "mlp", "batch norm", "kept norms", "scaffold", "feddyn", "ditto", "median", "quantized", "async"
        for number, name in some_of(enumerate(names), 3):
            words = [*KINDS[name], "memory.recompute=none"]
            cases = [(3, changes), (1, ["client:3"]), (2, ["client:1", "client:5"]), (2, changes)]
            for lanes, faults in fewer_of(cases, 2, number % 2):
                with self.subTest(name, lanes=lanes, faults=faults):
                    run = f"{name} {lanes} {len(faults)}"
                    report = self.folder / f"{run}.txt"
                    self.federate(run, *words, f"parallel_clients={lanes}",
                                  env={"BRIM_FAULT": ",".join(f"step:3:{one}" for one in faults),
                                       "BRIM_FAULT_REPORT": str(report)})
                    self.assert_same_checkpoint(self.whole(name), run, 4)
                    begun = [line.split() for line in report.read_text().splitlines()]
                    begun = [int(calls) for step, point, _, calls, _ in begun if (step, point) == ("3", "client")]
                    failed = sum("client" in one for one in faults)
                    self.assertEqual(sum(begun), 5 + failed)
                    self.assertEqual(any(f"at a time instead of {lanes}" in c for c in self.recoveries(run)),
                                     faults == changes)

    def recoveries(self, run):
        return [r["choice"] for r in self.records(run, "events.jsonl")
                if r["event"] == "decision" and r["by"] == "recovery"]

    # ---- the right numbers ----

    def test_averaging_is_that_of_plain_loops_in_double(self):
        draw = random.Random(7)
        for case in fewer_of(range(3), 2):
            self.compare_to_loops(draw, f"fedavg {case}", [])

    @plain
    def test_servers_are_those_of_plain_loops_in_double(self):
        """The servers are FedAdam, FedYogi and FedAdagrad (Reddi et al., 2021, algorithm 2)."""
        draw = random.Random(13)
        for server in "adam", "yogi", "adagrad":
            for case in fewer_of(range(2), 2):
                self.compare_to_loops(draw, f"{server} {case}", [f"server_optimizer={server}"], server=server)

    @plain
    def test_fedprox_is_that_of_plain_loops_in_double(self):
        """The proximal gradient counts in the norm that is limited, before weight decay is added; with class weights or
        ignored labels it is added to the weighted mean of the losses."""
        draw = random.Random(11)
        for case in fewer_of(range(4), 3):
            local = {"mu": draw.uniform(0.1, 2), "clip": [0, 0.05][case % 2], "decay": [0, 0.3][case // 2]}
            words = ["federate.local=fedprox", f"federate.mu={local['mu']}", f"training.clip_norm={local['clip']}",
                     f"optimizer.weight_decay={local['decay']}"]
            self.compare_to_loops(draw, f"fedprox {case}", words, **local)
            local["weights"] = [draw.uniform(0.2, 3) for _ in range(3)]
            words.append(f"loss.class_weights={local['weights']}")
            self.compare_to_loops(draw, f"fedprox of classes {case}", words, **local)

    def compare_to_loops(self, draw, name, words, weights=(), server="sgd", **local):
        """Compares a model of one layer. A client's samples are one batch, so that their order only affects rounding;
        clients differ in size. Rows, rates and numbers of epochs are random. `weights`: class weights; without classes,
        the task is a regression."""
        rows, features = draw.randint(23, 60), draw.randint(1, 4)
        clients, selected, epochs = draw.randint(3, 7), draw.randint(1, 3), draw.randint(1, 3)
        rate, server_rate, momentum = draw.uniform(0.01, 0.1), draw.uniform(0.5, 1), draw.choice([0, 0.9])
        if server != "sgd":
            server_rate, momentum = draw.uniform(0.01, 0.1), draw.uniform(0.5, 0.95)
        data = [[draw.uniform(-1, 1) for _ in range(features)] +
                [draw.randrange(len(weights)) if weights else draw.uniform(-1, 1)] for _ in range(rows)]
        text = ",".join([*(f"x{k}" for k in range(features)), "y"]) + "\n"
        text += "".join(",".join(repr(value) for value in row) + "\n" for row in data)
        folder = self.folder / f"data of {name}"
        folder.mkdir()
        (folder / "train.csv").write_text(text)
        (folder / "test.csv").write_text(text)
        kind = ["dataset.label=y"] if weights else ["dataset.targets=[y]", "loss=mse"]
        words = ["dataset=csv", f"dataset.path={folder}", *kind, "dataset.standardise=false", "model=mlp",
                 "model.hidden=[]", "backend=reference", f"total_clients={clients}", f"clients_per_round={selected}",
                 "method=round_robin", f"training.batch_size={rows}", f"optimizer.lr={rate}",
                 f"federate.local_epochs={epochs}", f"server_optimizer.lr={server_rate}",
                 *([] if server == "adagrad" else [f"server_optimizer.{'momentum' if server == 'sgd' else 'beta1'}="
                                                   f"{momentum}"]), "federate.checkpoint_every_rounds=1", *words]
        self.federate(f"{name} start", *words, "rounds=0")
        self.federate(name, *words, "rounds=5")
        data = [[float_of(value) for value in row] for row in data]
        model = self.model(f"{name} start", 0)
        mean, square = [0.0] * len(model), [1e-6 if server == "yogi" else 0.0] * len(model)
        parts = self.partition(name)
        self.assertEqual(sorted(sum(parts.values(), [])), list(range(rows)))
        for step in range(5):
            chosen = [(step * selected + k) % clients for k in range(selected)]
            updates = [update(model, [data[i] for i in parts[c]], rate, epochs, weights, **local) for c in chosen]
            weight = sum(len(parts[c]) for c in chosen)
            for k in range(len(model)):
                change = sum(u[k] * len(parts[c]) for u, c in zip(updates, chosen)) / weight
                mean[k], square[k], move = serve(server, momentum, mean[k], square[k], change)
                model[k] += server_rate * move
        for got, wanted in zip(self.model(name, 5), model):
            self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, got, wanted))

    @plain
    def test_a_selector_is_given_the_losses_of_clients_own_samples(self):
        """With all clients as candidates, power_of_choice must select those with the highest loss under the global
        model in every round. Clients have several batches, the last of them smaller."""
        draw = random.Random(3)
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(3)] for _ in range(60)]
        folder = self.folder / "data"
        folder.mkdir()
        for name in "train.csv", "test.csv":
            (folder / name).write_text("a,b,y\n" + "".join(",".join(map(repr, row)) + "\n" for row in data))
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "loss=mse",
                 "dataset.standardise=false", "model=mlp", "model.hidden=[]", "total_clients=9", "clients_per_round=2",
                 "method=power_of_choice", "method.d=9", "training.batch_size=4", "optimizer.lr=0.2"]
        for lanes in 1, 2:
            for rounds in range(4):
                self.federate(f"{lanes} {rounds}", *words, f"rounds={rounds}", f"parallel_clients={lanes}")
            parts, taken = self.partition(f"{lanes} 3"), self.records(f"{lanes} 3", "participants.jsonl")
            for rounds, record in enumerate(taken):
                *weights, bias = self.model(f"{lanes} {rounds}", rounds)
                losses = {client: sum((sum(w * v for w, v in zip(weights, data[i])) + bias - data[i][2]) ** 2
                                      for i in samples) / len(samples) for client, samples in parts.items()}
                self.assertEqual(set(record["client"]), set(sorted(losses, key=losses.get)[-2:]), (rounds, losses))

    # ---- FedProx ----

    @plain
    def test_fedprox_without_mu_has_the_bits_of_fedavg(self):
        self.federate("fedavg", *KINDS["dirichlet"])
        self.federate("fedprox", *KINDS["dirichlet"], "federate.local=fedprox", "federate.mu=0")
        self.federate("drawn", *KINDS["dirichlet"], "federate.local=fedprox")
        self.assert_same_checkpoint("fedavg", "fedprox", 4, STATE)
        self.assertNotEqual(self.model_bytes("fedavg"), self.model_bytes("drawn"))

    @plain
    def test_fedprox_has_the_same_bits_where_the_backward_pass_updates(self):
        """The model has batch norm, which has buffers. Classes have weights, so gradients have a scale."""
        words = [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "federate.local=fedprox",
                 "federate.mu=0.5", "loss.class_weights=[1,2,3,4]", "training.batch_size=5"]
        self.federate("step", *words)
        self.federate("backward", *words, "optimizer.update=fused_backward")
        self.assert_same_checkpoint("step", "backward", 4, STATE)

    @plain
    def test_fedprox_takes_no_memory(self):
        for update in "step", "fused_backward":
            words = ["--config-name", "federate", "plan", "--json", *MLP, f"optimizer.update={update}"]
            plans = [self.brim(*words, f"federate.local={local}").json for local in ("fedavg", "fedprox")]
            self.assertEqual(plans[0]["peak_bytes"], plans[1]["peak_bytes"])

    def model_bytes(self, run):
        return (self.checkpoint(run, 4) / "model.safetensors").read_bytes()

    # ---- running statistics of norms ----

    NORMS = ["model=lightcnn", "model.width=4", "model.norm=batch"]

    def norms(self, run, step):
        """Returns a list of values for each buffer."""
        values, _ = tensors.read(self.checkpoint(run, step) / "model.safetensors")
        return {key: numbers for key, (_, _, numbers) in values.items() if "running" in key}

    @plain
    def test_kept_statistics_are_those_of_plain_loops_in_double(self):
        """The learning rate is 0, and a client's samples are one batch and one group, so each step moves the client's
        statistics a tenth of the way towards constants. A run with one client a round shows these constants. From
        them the test computes what each client must keep in a run with several clients and epochs a round, and the
        global model's statistics as the weighted mean."""
        clients, selected, epochs, rounds = 7, 3, 2, 6
        words = [*SMALL, *self.NORMS, "backend=reference", "partition=dirichlet", "partition.alpha=0.5",
                 f"total_clients={clients}", "method=round_robin", "training.batch_size=240", "training.norm_group=240",
                 "optimizer.lr=0", "federate.checkpoint_every_rounds=1", "observe.report=false",
                 "training.keep_checkpoints=99"]
        self.federate("one", *words, "clients_per_round=1", f"rounds={clients}")
        start = [self.norms("one", step) for step in range(1, clients + 1)]
        start.insert(0, {key: [float("var" in key)] * len(values) for key, values in start[0].items()})
        own = [{key: [(b - 0.9 * a) / 0.1 for a, b in zip(start[c][key], start[c + 1][key])] for key in start[0]}
               for c in range(clients)]
        words += [f"clients_per_round={selected}", "federate.norm_buffers=keep", f"federate.local_epochs={epochs}"]
        self.federate("kept", *words, f"rounds={rounds}")
        parts, kept, model = self.partition("kept"), {}, start[0]
        for step in range(rounds):
            chosen = [(step * selected + k) % clients for k in range(selected)]
            for c in chosen:
                for _ in range(epochs):
                    kept[c] = {key: [0.9 * a + 0.1 * b for a, b in zip(kept.get(c, model)[key], own[c][key])]
                               for key in model}
            weight = sum(len(parts[c]) for c in chosen)
            model = {key: [sum(len(parts[c]) * kept[c][key][i] for c in chosen) / weight
                           for i in range(len(model[key]))] for key in model}
            self.assert_close(self.norms("kept", step + 1), model, f"global model of round {step + 1}")
            self.federate(f"kept {step}", *words, f"rounds={step + 1}")
            got = states.read(self.folder / f"kept {step}", self.checkpoint(f"kept {step}", step + 1), "d")
            self.assertEqual(got.keys(), kept.keys())
            for c in kept:
                of_client = {key: [got[c].pop(0) for _ in model[key]] for key in model}
                self.assertFalse(got[c])
                self.assert_close(of_client, kept[c], f"client {c} in round {step + 1}")
        self.assertEqual(len(kept), clients)

    def assert_close(self, got, wanted, what):
        self.assertEqual(got.keys(), wanted.keys())
        for key in wanted:
            for a, b in zip(got[key], wanted[key], strict=True):
                self.assertTrue(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (what, key, a, b))

    @plain
    def test_clients_train_alike_whether_they_keep_their_statistics(self):
        """Training normalises by the batch's own statistics, so the weights have the same bits although the statistics
        differ."""
        values = []
        for buffers in "average", "keep":
            self.federate(buffers, *SMALL, *self.NORMS, f"federate.norm_buffers={buffers}", "rounds=6")
            values.append(tensors.read(self.checkpoint(buffers, 6) / "model.safetensors")[0])
        differing = {name for name in values[0] if values[0][name] != values[1][name]}
        self.assertEqual(differing, {name for name in values[0] if "running" in name})

    def test_a_restarted_run_knows_nothing_of_clients(self):
        """The update of the second round fails half-way, before the run has a checkpoint."""
        for name in some_of(("kept norms", "async"), 2):
            words = [*KINDS[name], "federate.checkpoint_every_rounds=9"]
            self.federate(f"{name} whole", *words)
            self.federate(f"{name} torn", *words, env={"BRIM_FAULT": "step:2:update"})
            self.assertGreater(self.summary(f"{name} torn")["retries"], 0)
            self.assert_same_checkpoint(f"{name} whole", f"{name} torn", 4)

    def test_the_plan_counts_what_clients_keep(self):
        """A client keeps four bytes for each mean and variance of 4 + 8 + 16 channels."""
        words = ["--config-name", "federate", "plan", *SMALL, *self.NORMS, "rounds=100"]
        self.assertIn("each client keeps 224 B", self.brim(*words, "federate.norm_buffers=keep").out)
        plans = [self.brim(*words, "--json", f"federate.norm_buffers={b}").json for b in ("average", "keep")]
        self.assertEqual([plan["client_kept_bytes"] for plan in plans], [0, 224])
        # A state is rounded up to 256 bytes. The plan counts it twice for each of 12 clients, and for the 5 of a round.
        self.assertEqual([plan["states_bytes"] for plan in plans], [0, 4096 + 256 * (12 + 12 + 5)])
        self.assertEqual(plans[0]["host"]["clients_bytes"], 0)
        self.assertLess(plans[1]["host"]["clients_bytes"], 1024)
        self.assertEqual(plans[0]["peak_bytes"], plans[1]["peak_bytes"])

    @plain
    def test_the_plan_counts_what_compression_needs(self):
        """Each of two lanes holds the largest parameter twice as double (three times with top_k) and once as float."""
        largest = 64 * 9  # the first layer of the MLP
        for kind, values in ("none", 0), ("quantize", 20), ("sign", 20), ("top_k", 28):
            plan = self.brim("--config-name", "federate", "plan", "--json", *MLP, "parallel_clients=2",
                             f"federate.compression={kind}").json
            self.assertEqual(plan["host"]["compressing_bytes"], 2 * largest * values)

    @plain
    def test_the_plan_counts_what_error_feedback_needs(self):
        """A state has a float for each value that is sent; a lane needs the largest parameter twice as double."""
        plans = [self.brim("--config-name", "federate", "plan", "--json", *MLP, "parallel_clients=2",
                           "federate.compression=sign", f"federate.error_feedback={value}").json
                 for value in ("false", "true")]
        self.assertEqual([plan["client_kept_bytes"] for plan in plans], [0, 4 * (64 * 9 + 9 + 9 * 4 + 4)])
        lanes = 2 * 2 * 8 * 64 * 9
        self.assertEqual(plans[0]["host"]["clients_bytes"], 0)
        self.assertLessEqual(lanes, plans[1]["host"]["clients_bytes"])
        self.assertLess(plans[1]["host"]["clients_bytes"], lanes + 1024)
        self.assertEqual(plans[0]["peak_bytes"], plans[1]["peak_bytes"])

    @plain
    def test_clients_that_keep_more_than_the_disk_has_are_refused(self):
        """The plan fails with the sizes, and so does the run before it makes a folder."""
        clients, each = 500_000, 4 * (64 * 4096 + 4096 + 4096 * 4 + 4)
        disk = os.statvfs(self.folder)
        if disk.f_bavail * disk.f_frsize > clients * each:
            self.skipTest("this disk has room for them")
        words = [*MLP, "model.hidden=[4096]", "partition=dirichlet_each", "partition.samples=10",
                 f"total_clients={clients}", f"rounds={clients}", "federate.compression=sign",
                 "federate.error_feedback=true"]
        wanted = "client states take up to 526.5 GiB on the disk of", "1.1 MiB for each of 500000 clients", "free"
        self.assert_error(self.brim("--config-name", "federate", "plan", *words, status=NO_FIT), *wanted)
        self.assert_error(self.federate("run", *words, status=NO_FIT), *wanted)
        self.assertFalse((self.folder / "run").exists())

    @plain
    def test_a_run_without_the_states_of_its_clients_is_not_resumed(self):
        """With its states, its newest checkpoint can be resumed, and so can an older one until a round overwrites one
        of its states."""
        words = [*KINDS["kept norms"], "training.keep_checkpoints=9", "federate.checkpoint_every_rounds=1", "rounds=8"]
        self.federate("whole", *words)
        for name, step in ("missing", 8), ("recent", 4), ("old", 8):
            self.federate(name, *words, status=NO_FIT, env={"BRIM_FAULT": attempts(step, 12)})
        (self.folder / "missing" / "states.bin").unlink()
        self.assert_error(self.brim("federate", "--resume", "missing", status=3), "states.bin", "resume such a run")
        for name, step in ("recent", 3), ("old", 7), ("old", 6), ("old", 5), ("old", 4), ("old", 3):
            (self.checkpoint(name, step) / "model.safetensors").write_bytes(b"damaged")
        self.brim("federate", "--resume", "recent")
        self.assert_same_checkpoint("whole", "recent", 8)
        self.assert_error(self.brim("federate", "--resume", "old", status=3), "step-00000002", "no longer has")

    def test_a_damaged_state_of_a_client_ends_the_run(self):
        words = [*KINDS["kept norms"], "training.keep_checkpoints=9", "federate.checkpoint_every_rounds=1", "rounds=8"]
        self.federate("run", *words, status=NO_FIT, env={"BRIM_FAULT": attempts(6, 12)})
        path = self.folder / "run" / "states.bin"
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for at in states.slots(self.folder / "run"):
            damaged[at] ^= 4
        path.write_bytes(damaged)
        self.assert_error(self.brim("federate", "--resume", "run", status=3), "the state of client", "states.bin",
                          "is damaged: its checksum does not match", "restore the file from a copy")
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        self.assert_error(self.brim("federate", "--resume", "run", status=3), "the header of", "is damaged")
        path.write_bytes(whole)
        self.brim("federate", "--resume", "run")
        self.federate("undisturbed", *words)
        self.assert_same_checkpoint("undisturbed", "run", 8)

    # ---- partitions ----

    @plain
    def test_each_sample_has_one_client(self):
        for kind, words in ("iid", []), ("dirichlet", ["partition.alpha=0.05"]), ("shards", []):
            for seed in 1, 2:
                run = f"{kind} {seed}"
                self.federate(run, *MLP, f"partition={kind}", *words, f"seed={seed}", "rounds=1")
                parts = self.partition(run)
                self.assertEqual(sorted(sum(parts.values(), [])), list(range(240)), run)
                self.assertEqual(len(parts), 12, run)
        self.assertNotEqual(self.partition("iid 1"), self.partition("iid 2"))
        self.assertEqual({len(samples) for samples in self.partition("iid 1").values()}, {20})

    @plain
    def test_the_class_of_each_sample_is_written_where_there_are_classes(self):
        write_idx_dataset(self.folder / "idx", train=60)  # sample i has class i % 10
        for kind in "iid", "dirichlet", "shards":
            self.federate(kind, "model=mlp", "model.hidden=[]", "dataset=mnist", "dataset.path=idx", "total_clients=5",
                          "clients_per_round=1", "rounds=1", f"partition={kind}", "dataset.validation_fraction=0.2")
            head, *lines = self.read(kind, "partition.csv").splitlines()
            self.assertEqual(head, "client,sample,class")
            self.assertEqual(len(lines), 48)
            for _, sample, number in (map(int, line.split(",")) for line in lines):
                self.assertEqual(number, sample % 10)
        (self.folder / "train.csv").write_text("x,y\n" + "1,2\n" * 20)
        self.federate("values", "dataset=csv", "dataset.path=train.csv", "dataset.targets=[y]", "dataset.test=''",
                      "model=mlp", "loss=mse", "total_clients=4", "clients_per_round=2", "rounds=1")
        self.assertEqual(self.read("values", "partition.csv").splitlines()[0], "client,sample")

    @plain
    def test_a_partition_depends_only_on_seed_clients_and_labels(self):
        words = ["partition=dirichlet", "rounds=1"]
        self.federate("one", *MLP, *words)
        self.federate("two", *SMALL, "model=lightcnn", "model.width=4", *words, "clients_per_round=2",
                      "training.batch_size=3", "backend.threads=1", "optimizer=adam", "method=proportional")
        self.assertEqual(self.partition("one"), self.partition("two"))

    # ---- other commands and options ----

    def test_other_commands_take_the_folder(self):
        self.federate("run", *MLP)
        loss = self.summary("run")["test_loss"]
        self.assertIn(f"{loss:.4f}", self.brim("eval", "run").out)
        self.assertIn("'run' is finished", str(self.brim("federate", "--resume", "run")))
        self.brim("train", "--from", "run", "run.dir=again", "parallel_clients=1")
        self.assert_same_checkpoint("run", "again", 4)

    @plain
    def test_the_plan_matches_the_placement(self):
        for lanes in 1, 2, 3:
            words = [*MLP, f"parallel_clients={lanes}", "rounds=1", "training.eval_batch_size=1"]
            plan = self.brim("--config-name", "federate", "plan", "--json", *words).json
            self.federate(f"run {lanes}", *words)
            self.assertEqual(plan["peak_bytes"], self.summary(f"run {lanes}")["planned_peak_bytes"])
            self.assertEqual(plan["peak_bytes"], plan["server_bytes"] + lanes * plan["client_bytes"])

    @plain
    def test_the_plan_foresees_a_round(self):
        """The plan predicts a round of five clients of 20 samples, one after another, from times of kernels measured
        once."""
        plan = self.brim("--config-name", "federate", "plan", "--json", *MLP, "memory.timing=true",
                         "backend.threads=2").json
        for row in plan["table"]:
            turns = -(-5 // row["parallel_clients"])
            self.assertIn(row["basis"], ("timed", "derived", "guessed"))  # a busy machine leaves less time to measure
            self.assertGreater(row["client_seconds"], 0)
            self.assertAlmostEqual(row["round_seconds"], turns * row["client_seconds"], delta=1e-12)
        self.assertEqual([row["parallel_clients"] for row in plan["table"]], [1, 2])

    @plain
    def test_the_plan_of_a_client_whose_size_no_client_has(self):
        """The plan predicts the time of an average client, whose last batch may have a size that no real client has."""
        for words in ["partition=dirichlet", "training.batch_size=1000"], ["partition=classes"]:
            plan = self.brim("--config-name", "federate", "plan", "--json", *MLP, "total_clients=7",
                             "clients_per_round=3", "dataset.train_count=2000", *words).json
            self.assertGreater(plan["table"][0]["client_seconds"], 0)

    def test_the_plan_is_drawn_with_a_lane_for_each_client(self):
        words = [*MLP, "parallel_clients=3", "training.batch_size=8"]
        printed = self.brim("--config-name", "federate", "plan", *words, "-o", "plan.svg")
        self.assertIn("picture in plan.svg", printed.err)
        plan = self.brim("--config-name", "federate", "plan", "--json", *words).json
        drawing = xml.fromstring(self.read("plan.svg"))
        parts = collections.defaultdict(list)  # for each name, the y of its lower edges
        for rect in drawing.findall(".//{*}rect"):
            title = rect.find("{*}title")
            if title is not None:
                parts[title.text.split(":")[0]].append(float(rect.get("y")) + float(rect.get("height")))
        self.assertEqual(len(parts["server's parameters"]), 1)
        self.assertEqual(len(parts["server's sum of updates"]), 1)
        lanes = parts["client's parameters"]
        self.assertEqual(len(lanes), 3)
        ratio = plan["client_bytes"] / plan["server_bytes"]
        height = ratio * (parts["server's parameters"][0] - lanes[0])
        for above, below in zip(lanes[1:], lanes):  # y and height have two decimals
            self.assertAlmostEqual(below - above, height, delta=0.02 * (1 + ratio))
        texts = [text.text for text in drawing.findall(".//{*}text")]
        self.assertEqual([text for text in texts if text.startswith("lane")], ["lane 1", "lane 2", "lane 3"])

    @plain
    def test_memory_does_not_grow_with_clients(self):
        for clients in 12, 240:
            self.federate(f"{clients}", *MLP, f"total_clients={clients}", "rounds=1", "parallel_clients=2",
                          "training.batch_size=4")
        few, many = self.summary("12"), self.summary("240")
        self.assertLessEqual(many["planned_peak_bytes"], few["planned_peak_bytes"])

    # ---- bad input ----

    def test_options_that_clients_exclude_are_refused_with_their_place(self):
        cases = (
                (["clients_per_round=13"], ["clients_per_round 13", "the 12 clients", "argument"]),
                (["training.epochs=3"], ["'training.epochs' cannot be combined with total_clients=12", "rounds=N"]),
                (["training.steps=3"], ["'training.steps'", "rounds=N"]),
                (["precision=fp16"], ["'precision'", "bf16"]),
                (["augment.mixup=0.2"], ["'augment.mixup'"]),
                (["total_clients=241"], ["240 training samples", "total_clients=240 at most"]),
                (["partition=shards", "partition.shards=21"], ["partition.shards=20 at most"]),
                (["partition=dirichlet", "partition.alpha=0"], ["'partition.alpha' must be in (0,inf)"]),
                (["partition.min_samples=30"], ["total_clients=8 at most"]),
                (["federate.mu=1"], ["'federate.mu' has no effect", "argument", "federate.local=fedprox"]),
                (["federate.local=fedprox", "federate.mu=-1"], ["'federate.mu' must be in [0,inf)"]),
                (["federate.compression_bits=4"], ["'federate.compression_bits' has no effect", "argument",
                                                   "set federate.compression=quantize"]),
                (["federate.compression=sign", "federate.compression_share=0.5"],
                 ["'federate.compression_share' has no effect", "set federate.compression=top_k"]),
                (["federate.compression=quantize", "federate.compression_bits=1"], ["must be in [2,16]"]),
                (["federate.compression=top_k", "federate.compression_share=0"], ["must be in (0,1]"]),
                (["federate.error_feedback=true"],
                 ["'federate.error_feedback' has no effect with federate.compression=none", "argument"]),
                (["federate.compression=sign", "federate.error_feedback=true", "privacy.clip_norm=1"],
                 ["'federate.error_feedback' cannot be combined with privacy.clip_norm", "not what clipping did"]),
                (["federate.compression=half"], ["none|quantize|sign|top_k, got half"]),
                (["federate.norm_buffers=keep"], ["model=mlp", "has no running statistics", "remove it"]),
                (["federate.norm_buffers=local"], ["average|keep, got local", "argument"]),
                (["~server_optimizer"], ["server_optimizer"]),
                (["total_clients=0", "clients_per_round=1", "~server_optimizer"], ["there are no clients"]),
                (["total_clients=0"], ["there are no clients: total_clients is 0", "argument", "brim train"]))
        for words, parts in some_of(cases, 4):
            with self.subTest(words):
                result = self.federate("run", *MLP, *words, status=USAGE)
                self.assert_error(result, *parts)
                self.assertFalse((self.folder / "run").exists())
        self.assert_error(self.train("run", "server_optimizer=adam", status=USAGE), "has no effect without clients")

    def test_without_room_a_fitting_size_is_suggested(self):
        result = self.federate("run", *MLP, "model.hidden=[4000]", "memory.limit_mb=1", status=NO_FIT)
        self.assert_error(result, "memory.limit_mb allows")

    def test_a_client_that_diverges_is_left_out_or_ends_the_run(self):
        words = [*MLP, "optimizer.lr=1e30"]
        result = self.federate("all", *words, status=FAILED)
        self.assert_error(result, "all 5 clients of round 1 have diverged", "optimizer.lr")
        result = self.federate("first", *words, "federate.on_divergence=fail", status=FAILED)
        self.assert_error(result, "has diverged")

    def test_clients_that_all_diverge_leave_a_checkpoint_of_the_round_before(self):
        words = [*MLP, "federate.checkpoint_every_rounds=100", "model.hidden=[9,9]", "optimizer.lr=0.5",
                 "server_optimizer.lr=100"]
        result = self.federate("run", *words, "rounds=9", status=FAILED)
        step = max(self.steps("run"))
        self.assert_error(result, f"all 5 clients of round {step + 1} have diverged",
                          f"there is a checkpoint of step {step}", "brim federate --resume run")
        self.federate("short", *words, f"rounds={step}")
        self.assert_same_checkpoint("short", "run", step, STATE)


def attempts(step, count):
    """Returns a fault that makes the first attempts at a round fail."""
    return ",".join(f"step:{step}:begin:{n}" for n in range(1, count + 1))


def float_of(value):
    """Rounds a value to a float, as the data set stores it."""
    return struct.unpack("f", struct.pack("f", value))[0]


def serve(server, momentum, mean, square, change):
    """Returns the server's moving averages of updates and of their squares after one more update, and the change before
    it is multiplied by the learning rate."""
    if server == "sgd":
        mean = momentum * mean + change
        return mean, square, mean
    mean = change if server == "adagrad" else momentum * mean + (1 - momentum) * change
    if server == "adagrad":
        square += change ** 2
    elif server == "yogi":
        square -= 0.01 * change ** 2 * math.copysign(1, square - change ** 2)
    else:
        square = 0.99 * square + 0.01 * change ** 2
    return mean, square, mean / (math.sqrt(square) + 1e-3)


def update(model, rows, rate, epochs, weights=(), mu=0.0, clip=0.0, decay=0.0):
    """Returns the change of the weights by a client's epochs of gradient descent on the mean of its losses plus `mu`/2
    times the squared distance from the global model. The gradients' global norm is limited to `clip`, then `decay` is
    added."""
    local = list(model)
    for _ in range(epochs):
        gradient = gradient_of(local, rows, weights)
        gradient = [g + mu * (w - start) for g, w, start in zip(gradient, local, model)]
        norm = math.sqrt(sum(g * g for g in gradient))
        factor = min(1, clip / (norm + 1e-6)) if clip else 1
        local = [w - rate * (factor * g + decay * w) for w, g in zip(local, gradient)]
    return [w - start for w, start in zip(local, model)]


def gradient_of(local, rows, weights):
    """Returns the gradient of the mean squared error of one output, or of the weighted mean of cross entropies of
    many."""
    outputs, features = max(len(weights), 1), len(rows[0]) - 1
    bias = outputs * features
    gradient = [0.0] * len(local)
    total = sum(weights[int(y)] for *_, y in rows) if weights else len(rows)
    for *x, y in rows:
        answers = [sum(local[o * features + k] * v for k, v in enumerate(x)) + local[bias + o] for o in range(outputs)]
        if weights:
            shares = [math.exp(a) for a in answers]
            errors = [weights[int(y)] * (s / sum(shares) - (o == int(y))) for o, s in enumerate(shares)]
        else:
            errors = [2 * (answers[0] - y)]
        for o, error in enumerate(errors):
            for k, v in enumerate(x):
                gradient[o * features + k] += error * v / total
            gradient[bias + o] += error / total
    return gradient


if __name__ == "__main__":
    main()
