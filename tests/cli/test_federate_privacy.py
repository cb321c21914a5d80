"""Tests the privacy of a federation's clients: clipped updates and noise equal plain loops in double precision with a
Philox of their own; noise and the draw of clients have the right distributions; records have the account's epsilon, and
a budget ends the run; brim refuses options that would spoil the account."""

import math
import random

import tensors
from federations import FederationCase
from support import FAILED, USAGE, main, plain
from test_federate import KINDS, MLP, attempts, float_of, update

NOISE, SELECT = 13, 11  # the random streams
MASK = 0xFFFFFFFF


def philox(seed, use, stream, item, block):
    """Returns two numbers of 64 bits by Philox4x32-10, with the counter and key layout of brim/random.h."""
    c, k = [block, item & MASK, item >> 32, use << 24 | stream], [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return [c[0] << 32 | c[1], c[2] << 32 | c[3]]


def normals(seed, stream, item, count):
    """Returns independent normal numbers."""
    out = []
    for block in range((count + 1) // 2):
        a, b = philox(seed, NOISE, stream, item, block)
        length, angle = math.sqrt(-2 * math.log((a + 0.5) / 2**64)), 2 * math.pi * b / 2**64
        out += [length * math.cos(angle), length * math.sin(angle)]
    return out[:count]


def drawn(seed, step, clients, rate):
    """Returns the clients of a round by Poisson sampling."""
    return [k for k in range(clients) if philox(seed, SELECT, 0xFFFFFE, step, k // 2)[k % 2] >> 11 < rate * 2**53]


def norm_of(values):
    return math.sqrt(sum(v * v for v in values))


class Private(FederationCase):
    def model(self, run, step):
        """Returns the values of each tensor of the model, in order."""
        values, _ = tensors.read(self.checkpoint(run, step) / "model.safetensors")
        return [list(values[name][2]) for name in sorted(values, key=lambda n: not n.endswith("weight"))]

    # ---- the right numbers ----

    @plain
    def test_clipped_and_noisy_updates_are_those_of_plain_loops_in_double(self):
        """The cases have central noise with clients drawn by Poisson sampling or in turn, local noise, or no noise, and
        fixed or adaptive clip norms."""
        draw = random.Random(17)
        for noise in "central", "turns", "local", "none":
            for adapts in (False, True) if noise != "local" else (False,):
                with self.subTest(noise, adapts=adapts):
                    self.compare(draw, f"{noise} {adapts}", noise, adapts)

    def compare(self, draw, name, noise, adapts):
        rows, features, clients, selected = 60, 3, draw.randint(6, 9), draw.randint(2, 4)
        rate, seed, clip = draw.uniform(0.05, 0.1), draw.randrange(1, 2**62), draw.uniform(0.02, 0.1)
        multiplier = 0 if noise == "none" else draw.uniform(0.3, 2)
        quantile, step_size, stddev = draw.uniform(0.2, 0.8), draw.uniform(0.1, 0.5), draw.uniform(1.1, 2)
        local = draw.choice([1, 2])
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(features + 1)] for _ in range(rows)]
        folder = self.folder / f"data of {name}"
        folder.mkdir()
        head = ",".join([*(f"x{k}" for k in range(features)), "y"]) + "\n"
        for file in "train.csv", "test.csv":
            (folder / file).write_text(head + "".join(",".join(map(repr, row)) + "\n" for row in data))
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "dataset.standardise=false",
                 "loss=mse", "model=mlp", "model.hidden=[]", "backend=reference", f"total_clients={clients}",
                 f"clients_per_round={selected}", "partition.sizes=lognormal", f"training.batch_size={rows}",
                 f"optimizer.lr={rate}", f"federate.local_epochs={local}", "federate.checkpoint_every_rounds=1",
                 "training.keep_checkpoints=9", f"privacy.clip_norm={clip}", f"privacy.seed={seed}"]
        if multiplier:
            words += [f"privacy.noise_multiplier={multiplier}",
                      f"privacy.noise={'local' if noise == 'local' else 'central'}"]
        if noise != "central":
            words.append("method=round_robin")
        if adapts:
            words += [f"privacy.target_quantile={quantile}", f"privacy.clip_norm_lr={step_size}",
                      f"privacy.count_stddev={stddev}"]
        self.federate(f"{name} start", *words, "rounds=0")
        seed ^= 1  # changes the run's seed
        self.federate(name, *words, "rounds=5")
        model, parts = self.model(f"{name} start", 0), self.partition(name)
        if adapts and multiplier:
            multiplier = 1 / math.sqrt(1 / multiplier**2 - 1 / (2 * stddev)**2)
        clipped = 0
        for step in range(5):
            chosen = [(step * selected + k) % clients for k in range(selected)]
            if noise == "central":
                chosen = drawn(seed, step, clients, selected / clients)
            flat = sum(model, [])
            updates = [update(flat, [data[i] for i in parts[c]], rate, local) for c in chosen]
            norms = [norm_of(u) for u in updates]
            clipped += sum(norm > clip for norm in norms)
            change = [sum(u[k] * min(1, clip / norm) for u, norm in zip(updates, norms)) for k in range(len(flat))]
            items = [(c + 1) << 32 | step for c in chosen] if noise == "local" else [step]
            for item in items:
                added = sum((normals(seed, stream, item, len(part)) for stream, part in enumerate(model)), [])
                change = [value + multiplier * clip * number for value, number in zip(change, added)]
            moved = iter([value + more / selected for value, more in zip(flat, change)])
            model = [[next(moved) for _ in part] for part in model]
            if adapts:
                count = sum(0.5 if norm <= clip else -0.5 for norm in norms)
                count += stddev * normals(seed, MASK >> 8, step, 1)[0] if multiplier else 0
                clip *= math.exp(-step_size * (count / selected + 0.5 - quantile))
                stored, _ = tensors.read(self.checkpoint(name, step + 1) / "optimizer.safetensors")
                self.assertTrue(math.isclose(stored["privacy.clip_norm"][2][0], clip, rel_tol=1e-9))
            for got, wanted in zip(sum(self.model(name, step + 1), []), sum(model, [])):
                self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, step, got, wanted))
        self.assertGreater(clipped, 0)

    @plain
    def test_a_client_moves_the_model_by_the_clip_norm_at_most(self):
        """The samples of one of six clients are multiplied by 1e-3 to 1e6; with 1e6 it diverges."""
        draw, clip, clients = random.Random(5), 0.03, 6
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(4)] for _ in range(48)]
        words = ["dataset=csv", "dataset.targets=[y]", "loss=mse", "dataset.standardise=false", "model=mlp",
                 "model.hidden=[5]", "backend=reference", f"total_clients={clients}", f"clients_per_round={clients}",
                 "training.batch_size=4", "optimizer.lr=0.05", "rounds=1", f"privacy.clip_norm={clip}"]
        models, own = {}, []
        for scale in 1, 1e-3, -30, 1e3, 1e6:
            folder = self.folder / f"data {scale}"
            folder.mkdir()
            rows = [[value * (scale if i in own else 1) for value in row] for i, row in enumerate(data)]
            for file in "train.csv", "test.csv":
                (folder / file).write_text("a,b,c,y\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows))
            self.federate(f"run {scale}", *words, f"dataset.path={folder}")
            own = own or self.partition("run 1")[2]
            self.assertEqual(self.partition(f"run {scale}")[2], own)
            models[scale] = sum(self.model(f"run {scale}", 1), [])
        for scale in list(models)[1:]:
            moved = norm_of([a - b for a, b in zip(models[1], models[scale])]) * clients
            self.assertGreater(moved, clip / 100, scale)
            self.assertLessEqual(moved, 2 * clip, scale)

    def test_rounds_that_are_made_again_have_the_same_clip_norm_and_noise(self):
        """The update of a round fails half-way, before the first checkpoint and after it; and a round runs out of
        memory."""
        words = [*KINDS["central noise"], "federate.checkpoint_every_rounds=2"]
        self.federate("whole", *words)
        for fault in "step:2:update", "step:4:update", attempts(3, 4), "step:2:client:1":
            with self.subTest(fault):
                run = fault.replace(":", " ").replace(",", " ")
                self.federate(run, *words, env={"BRIM_FAULT": fault})
                self.assertGreater(self.summary(run)["retries"], 0)
                self.assert_same_checkpoint("whole", run, 4)
                self.assert_same_records("whole", run)

    # ---- distributions ----

    # Clients learn nothing, so their updates are 0, and only noise changes the model.
    STILL = [*MLP, "model.hidden=[80]", "optimizer.lr=0", "total_clients=40", "clients_per_round=4",
             "privacy.clip_norm=2", "privacy.noise_multiplier=1.5", "federate.checkpoint_every_rounds=1",
             "training.keep_checkpoints=99", "federate.client_accuracy=false", "observe.report=false"]

    def changes(self, run, rounds):
        """Returns the change of the model in each round, in units of the deviation that noise should have. The model is
        stored in single precision, which is fine enough."""
        models = [sum(self.model(run, step), []) for step in range(1, rounds + 1)]
        unit = 2 * 1.5 / 4
        return [[(b - a) / unit for a, b in zip(x, y)] for x, y in zip(models, models[1:])]

    @plain
    def test_noise_is_normal_and_independent(self):
        """A round has 5524 values. Bounds are five deviations; with a fixed seed the result is always the same."""
        self.federate("run", *self.STILL, "rounds=6")
        rounds = self.changes("run", 6)
        every = sum(rounds, [])
        count = len(every)
        self.assertLess(abs(sum(every) / count), 5 / math.sqrt(count))
        self.assertLess(abs(sum(v * v for v in every) / count - 1), 5 * math.sqrt(2 / count))
        self.assertLess(abs(sum(v**4 for v in every) / count - 3), 5 * math.sqrt(96 / count))
        for bound in 0.5, 1, 2, 3:
            share = sum(v < -bound for v in every) / count
            wanted = math.erfc(bound / math.sqrt(2)) / 2
            self.assertLess(abs(share - wanted), 5 * math.sqrt(wanted / count), bound)
        for other in [rounds[0][1:] + rounds[0][:1], rounds[0][2:] + rounds[0][:2], *rounds[1:]]:
            product = sum(a * b for a, b in zip(rounds[0], other)) / len(other)
            self.assertLess(abs(product), 5 / math.sqrt(len(other)))

    @plain
    def test_noise_is_the_same_for_lanes_that_share_a_tensor(self):
        """Lanes add noise in pieces of 8192 values; the largest tensor has two and a half."""
        words = [*self.STILL, "model.hidden=[320]", "rounds=2", "privacy.seed=6"]
        for noise in "central", "local":
            for lanes in 1, 2, 4:
                self.federate(f"{noise} {lanes}", *words, f"privacy.noise={noise}", f"parallel_clients={lanes}",
                              "backend.threads=4")
                self.assert_same_checkpoint(f"{noise} 1", f"{noise} {lanes}", 2)
        before, after = (max(self.model("central 1", step), key=len) for step in (1, 2))
        self.assertEqual(len(before), 20480)
        for a, b, wanted in zip(before, after, normals(6 ^ 1, 0, 1, len(before))):
            self.assertLess(abs(b - a - wanted * 2 * 1.5 / 4), 1e-5)

    @plain
    def test_local_noise_grows_with_the_clients_of_a_round(self):
        self.federate("run", *self.STILL, "rounds=3", "privacy.noise=local")
        for values in self.changes("run", 3):  # four clients a round
            self.assertLess(abs(norm_of(values) / math.sqrt(4 * len(values)) - 1), 5 / math.sqrt(2 * len(values)))

    @plain
    def test_clients_are_drawn_independently_with_the_same_probability(self):
        """60 clients, each drawn with probability 1/10, over 1500 rounds; pairs of clients are checked too. Some rounds
        have no client."""
        rounds, clients, rate = 1500, 60, 0.1
        self.federate("run", *MLP, "dataset.train_count=60", f"total_clients={clients}", "clients_per_round=6",
                      f"rounds={rounds}", "federate.train=false", "privacy.clip_norm=1", "privacy.noise_multiplier=1")
        taken = [r["client"] for r in self.records("run", "participants.jsonl")]
        self.assertEqual(taken, [drawn(1, step, clients, rate) for step in range(rounds)])
        times = [sum(k in round_ for round_ in taken) for k in range(clients)]
        limit = 5 * math.sqrt(rounds * rate * (1 - rate))
        for k, number in enumerate(times):
            self.assertLess(abs(number - rounds * rate), limit, k)
        both = [sum(k in round_ and (k + 1) % clients in round_ for round_ in taken) for k in range(clients)]
        for k, number in enumerate(both):
            self.assertLess(abs(number - rounds * rate**2), 5 * math.sqrt(rounds * rate**2), k)
        sizes = [len(round_) for round_ in taken]
        variance = sum((size - clients * rate)**2 for size in sizes) / rounds
        self.assertLess(abs(variance / (clients * rate * (1 - rate)) - 1), 5 * math.sqrt(2.5 / rounds))
        self.assertIn(0, sizes)

    @plain
    def test_rounds_without_clients_add_noise_alone(self):
        words = [*self.STILL, "total_clients=24", "clients_per_round=1", "rounds=12"]
        self.federate("run", *words)
        empty = [r["round"] for r in self.records("run", "participants.jsonl") if not r["client"]]
        self.assertGreater(len(empty), 1)
        before = self.model("run", empty[1] - 1)
        self.assertNotEqual(before, self.model("run", empty[1]))
        self.assertEqual(self.summary("run")["steps"], 12)

    # ---- the account ----

    def test_records_have_the_epsilon_after_each_round(self):
        """The expected values are those of dp-accounting 0.6.0: RdpAccountant().compose(PoissonSampledDpEvent(5/12,
        GaussianDpEvent(1.1)), n) and GaussianDpEvent(1.1) for clients in turn, at delta 1e-4."""
        words = [*MLP, "privacy.clip_norm=0.5", "privacy.noise_multiplier=1.1", "privacy.delta=1e-4", "rounds=4"]
        known = {"random": POISSON, "round_robin": TURNS}
        for method, wanted in known.items():
            self.federate(method, *words, f"method={method}")
            got = [r["epsilon"] for r in self.records(method) if r["split"] == "train"]
            self.assertEqual(len(got), 4)
            for a, b in zip(got, wanted):
                self.assertGreaterEqual(a, b)
                self.assertLess(a, b * 1.001)
            self.assertEqual(self.summary(method)["epsilon"], got[-1])
            self.assertEqual(self.summary(method)["delta"], 1e-4)
            plan = self.brim("--config-name", "federate", "plan", "--json", *words, f"method={method}").json
            self.assertEqual(plan["epsilon"], got[-1])

    @plain
    def test_local_noise_counts_the_updates_that_a_client_has_sent(self):
        self.federate("run", *MLP, "privacy.clip_norm=0.5", "privacy.noise_multiplier=1.1", "privacy.delta=1e-4",
                      "privacy.noise=local", "rounds=6")
        times, alone = {}, {}
        for record in self.records("run", "participants.jsonl"):
            for client in record["client"]:
                times[client] = times.get(client, 0) + 1
            alone[record["round"]] = max(times.values())
        for record in self.records("run"):
            if record["split"] == "train" and alone[record["step"]] <= len(GAUSSIAN):
                self.assertTrue(math.isclose(record["epsilon"], GAUSSIAN[alone[record["step"]] - 1], rel_tol=1e-6))
        self.assertGreater(alone[6], 1)

    def test_a_budget_ends_the_run_before_the_round_that_would_exceed_it(self):
        words = [*MLP, "privacy.clip_norm=0.5", "privacy.noise_multiplier=1.1", "privacy.delta=1e-4", "rounds=50"]
        budget = [f"privacy.max_epsilon={(POISSON[2] + POISSON[3]) / 2}", "federate.checkpoint_every_rounds=2"]
        result = self.federate("run", *words, *budget)
        self.assertEqual(self.summary("run")["steps"], 3)
        self.assertLess(self.summary("run")["epsilon"], POISSON[2] * 1.001)
        self.assertIn("privacy.max_epsilon", result.out)
        plan = self.brim("--config-name", "federate", "plan", *words, *budget).out
        self.assertIn("after 3 rounds", plan)
        self.federate("three", *words, "rounds=3")
        self.assert_same_checkpoint("three", "run", 3, ["model.safetensors", "optimizer.safetensors"])
        for method in "random", "round_robin":
            result = self.federate("spent", *words, f"method={method}", "privacy.max_epsilon=0.9", status=USAGE)
            self.assert_error(result, "privacy.max_epsilon=0.9 is too small for round 1", "privacy.noise_multiplier")

    # ---- refusals ----

    def test_what_would_spoil_the_account_is_refused(self):
        noise = ["privacy.clip_norm=1", "privacy.noise_multiplier=1"]
        cases = [([*noise, "method=proportional"], "method", "method=random or method=round_robin"),
                 ([*noise, "federate.over_selection=0.5"], "federate.over_selection", "leave it at 0"),
                 ([*noise, "federate.min_clients=2"], "federate.min_clients", "leave it at 1"),
                 ([*noise, "world.availability=day"], "world.availability", "world.availability=always"),
                 ([*noise, "federate.on_divergence=fail"], "federate.on_divergence", "federate.on_divergence=drop"),
                 ([*noise, "privacy.delta=0.1"], "privacy.delta=0.1 is not below 1/total_clients=0.0833333", "smaller"),
                 ([*noise, "privacy.noise=local", "privacy.target_quantile=0.5"], "privacy.target_quantile", "central"),
                 ([*noise, "privacy.target_quantile=0.5", "privacy.count_stddev=0.5"], "privacy.count_stddev=0.5",
                  "above 0.5"),
                 (["privacy.clip_norm=1", "aggregator=fednova"], "aggregator=fednova", "aggregator=uniform"),
                 (["privacy.clip_norm=1", "aggregator=fedavg"], "aggregator=fedavg", "aggregator=uniform"),
                 (["privacy.noise_multiplier=1"], "privacy.noise_multiplier", "set privacy.clip_norm as well"),
                 (["privacy.target_quantile=0.5"], "privacy.target_quantile", "set privacy.clip_norm as well"),
                 (["privacy.clip_norm=1", "privacy.max_epsilon=1"], "privacy.max_epsilon", "privacy.noise_multiplier")]
        for words, *parts in cases:
            with self.subTest(words):
                self.assert_error(self.federate("run", *MLP, *words, status=USAGE), *parts, "command line")
        norms = [word for word in MLP if not word.startswith("model")] + ["model=lightcnn", "model.norm=batch"]
        self.assert_error(self.federate("run", *norms, *noise, status=USAGE), "batch norm", "model.norm=group")
        result = self.brim("train", "model=mlp", "dataset=synthetic", "privacy.clip_norm=1", status=USAGE)
        self.assert_error(result, "privacy.clip_norm", "total_clients")

    def test_a_client_that_diverges_counts_as_an_update_of_zero(self):
        """Without noise the run ends if all clients have diverged. With noise, the run must not reveal that."""
        words = [*MLP, "optimizer.lr=1e30", "privacy.clip_norm=1", "clients_per_round=12", "rounds=2"]
        self.federate("none", *words, status=FAILED)
        for noise in "central", "local":
            self.federate(noise, *words, f"privacy.noise={noise}", "privacy.noise_multiplier=1",
                          "federate.checkpoint_every_rounds=1")
            first, second = (sum(self.model(noise, step), []) for step in (1, 2))
            deviation = math.sqrt(12 if noise == "local" else 1) / 12
            norm = norm_of([b - a for a, b in zip(first, second)]) / deviation
            self.assertLess(abs(norm / math.sqrt(len(first)) - 1), 5 / math.sqrt(2 * len(first)))

    @plain
    def test_an_old_name_is_taken(self):
        result = self.federate("run", *MLP, "dp_clip_norm=0.5", "rounds=1")
        self.assertIn("privacy.clip_norm=0.5", result.out + result.err)


POISSON = [2.711103694189547, 3.6410207139629343, 4.335097458323787, 4.919098425569594]
GAUSSIAN = [3.735091672680727, 5.624765340900476, 7.185401699977724, 8.572376186255923, 9.848746040983887,
            11.045160982937663]
TURNS = [GAUSSIAN[0], GAUSSIAN[0], GAUSSIAN[1], GAUSSIAN[1]]  # five of twelve clients a round

if __name__ == "__main__":
    main()
