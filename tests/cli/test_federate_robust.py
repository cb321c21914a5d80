"""Tests aggregators that see all updates of a round, and malicious clients: results are those of their papers'
formulas, computed here by plain loops in double precision over rounds of clients that differ in size."""

import math
import random
import statistics

import tensors
from client_order import permutation, random4
from federations import FederationCase
from support import USAGE, fewer_of, main, plain
from test_federate import MLP, SMALL, float_of
from test_federate_aggregators import Update

ROUNDS = 5
CLIENT = 10  # enum brim_stream_use


class Robust(FederationCase):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(self.id())

    def compare(self, name, aggregator, selected, *words, twins=False, large=None, attack=None, **params):
        """Compares a linear regression; sizes of clients, rates and the clients of a round are drawn. `twins`: clients
        2k and 2k + 1 have the same samples, and make the same update of them. Client `large` has samples so large that
        it diverges. `attack`: changes the update of a malicious client."""
        draw = self.draw
        seed, clients, batch = draw.randrange(1 << 40), selected + draw.randint(0, 3), draw.randint(2, 9)
        rate, server, rows = draw.uniform(0.01, 0.1), draw.uniform(0.5, 1), 12 * clients
        folder, features = self.folder / f"data of {name}", draw.randint(1, 4)
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(features + 1)] for _ in range(rows)]
        sizes = ["partition.sizes=lognormal", "partition.sigma=0.8"]
        if twins:  # each client has one sample, which is its batch, so the order of samples cannot affect rounding
            clients, batch = clients + clients % 2, 1
            data = [data[k // 2] for k in range(clients)]
            shares = self.folder / f"{name}.csv"
            shares.write_text("client,sample\n" + "".join(f"{k},{k}\n" for k in range(clients)))
            sizes = ["partition=file", f"partition.path={shares}"]
        self.write_data(folder, data)
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "dataset.standardise=false",
                 "loss=mse", "model=mlp", "model.hidden=[]", "backend=reference", f"seed={seed}",
                 f"total_clients={clients}", f"clients_per_round={selected}", *sizes,
                 f"training.batch_size={batch}", f"optimizer.lr={rate}", f"server_optimizer.lr={server}",
                 "server_optimizer.momentum=0", "training.keep_checkpoints=9",
                 "federate.checkpoint_every_rounds=1", f"aggregator={aggregator}", *words,
                 *(f"aggregator.{key}={value}" for key, value in params.items())]
        self.federate(f"{name} start", *words, "rounds=0")
        parts, model = self.partition(f"{name} start"), self.model(f"{name} start", 0)
        for i in parts.get(large, []):
            data[i] = [4096 * value for value in data[i]]
        self.write_data(folder, data)
        self.federate(name, *words, f"rounds={ROUNDS}", f"parallel_clients={draw.randint(1, 2)}")
        taken = self.records(name, "participants.jsonl")
        for number, record in enumerate(taken):
            arrived = {}
            for place, (client, has_arrived) in enumerate(zip(record["client"], record["arrived"])):
                self.assertFalse(client == large and has_arrived)
                if not has_arrived:
                    continue
                made = Update(model, [data[i] for i in parts[client]], rate, seed, client, [number], batch).change
                arrived[client] = attack(made, seed, client, number) if attack and record["malicious"][place] else made
            change = RESULT[aggregator](arrived, **params)
            model = [value + server * moved for value, moved in zip(model, change)]
            for got, wanted in zip(self.model(name, number + 1), model):
                self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, number, got, wanted))
        return taken

    # ---- aggregators ----

    CASES = [("median", {}), ("trimmed_mean", {"byzantine": 1}), ("trimmed_mean", {"byzantine": 2}),
             ("krum", {"byzantine": 1}), ("krum", {"byzantine": 2}), ("multi_krum", {"byzantine": 2}),
             ("multi_krum", {"byzantine": 1, "chosen": 3})]

    @plain
    def test_results_are_those_of_the_papers(self):
        for number, (aggregator, params) in enumerate(self.CASES):
            sizes = 7, 8, 40  # odd, even, and more than the columns of a sorting network's strip
            for selected in sizes if aggregator == "median" else fewer_of(sizes, 3, number % 3):
                with self.subTest(aggregator, selected=selected, **params):
                    self.compare(f"{aggregator} {number} {selected}", aggregator, selected, **params)

    @plain
    def test_ties(self):
        """Pairs of equal updates have the same score of Krum, and the client with the lower number wins."""
        for number, (aggregator, params) in enumerate(self.CASES):
            for selected in fewer_of((7, 8), 2, number % 2):
                with self.subTest(aggregator, selected=selected, **params):
                    self.compare(f"{aggregator} {number} {selected}", aggregator, selected, twins=True, **params)

    def test_updates_that_do_not_arrive_are_left_out(self):
        for aggregator, least in ("median", 1), ("trimmed_mean", 3), ("krum", 5), ("multi_krum", 5):
            with self.subTest(aggregator):
                params = {} if aggregator == "median" else {"byzantine": 1}
                taken = self.compare(f"{aggregator} away", aggregator, 8, "world.dropout=0.3", **params)
                self.assertTrue(any(False in record["arrived"] for record in taken))
                self.assertTrue(all(sum(record["arrived"]) >= least for record in taken))
                taken = self.compare(f"{aggregator} large", aggregator, 8, large=1, **params)
                self.assertTrue(any(1 in record["client"] for record in taken))

    def test_too_few_clients_are_refused(self):
        for words, least, given in (["aggregator=krum", "aggregator.byzantine=2"], 7, 5), \
                                   (["aggregator=multi_krum", "aggregator.chosen=6"], 6, 5), \
                                   (["aggregator=trimmed_mean", "aggregator.byzantine=3"], 7, 6):
            result = self.federate("run", *MLP, f"clients_per_round={given}", *words, status=USAGE)
            self.assert_error(result, f"needs the updates of {least} clients, and a round has {given}",
                              f"set clients_per_round to {least} at least, or aggregator.byzantine lower")
            self.federate(words[0], *MLP, f"clients_per_round={least}", *words, "rounds=1")

    def test_parameters_that_are_not_sent_are_in_no_row(self):
        """Krum takes one client's update whole, so the rest of the global model stays as it was."""
        words = [*MLP, "aggregator=krum", "rounds=1", "federate.local_parameters=fc2.*"]
        self.federate("start", *words, "rounds=0")
        self.federate("run", *words, "attack.kind=noise", "attack.clients=[1]", "attack.scale=100")
        before, after = (tensors.read(self.checkpoint(run, step) / "model.safetensors")[0]
                         for run, step in (("start", 0), ("run", 1)))
        self.assertEqual({name for name in before if before[name] == after[name]},
                         {name for name in before if name.startswith("fc2")})

    def test_a_round_with_too_few_updates_fails(self):
        result = self.federate("run", *MLP, "clients_per_round=5", "aggregator=krum", "world.dropout=0.99", status=5)
        self.assert_error(result, "attempts got the updates of 5 clients")

    @plain
    def test_the_plan_has_the_file_and_the_memory(self):
        words = ["--config-name", "federate", "plan", *MLP, "parallel_clients=2"]
        values, rows = 64 * 9 + 9 + 9 * 4 + 4, 5
        self.assertIn(f"the updates of a round take {4 * values * rows / 1024:.1f} KiB on the disk",
                      self.brim(*words, "aggregator=krum").out)
        plans = {a: self.brim(*words, "--json", f"aggregator={a}").json for a in ("fedavg", "krum")}
        self.assertEqual([plans[a]["updates_file_bytes"] for a in plans], [0, 4 * values * rows])
        lanes = 2 * 2 * 4 * 64 * 9
        block = 8 * rows * 8192 + 4 * 8192 + 8 * 64 * 9  # updates, a part of a row, and the result of a parameter
        scratch = 8 * (rows * (rows - 1) // 2 + rows) + 24 * rows
        self.assertEqual([plans[a]["host"]["updates_bytes"] for a in plans], [0, lanes + block + scratch])
        self.assertEqual(plans["krum"]["peak_bytes"], plans["fedavg"]["peak_bytes"])

    # ---- attacks ----

    @plain
    def test_malicious_updates(self):
        """Every aggregator processes a malicious update like any other."""
        for aggregator in "uniform", "median", "krum":
            scale = self.draw.uniform(0.5, 3)
            with self.subTest(aggregator):
                taken = self.compare(f"{aggregator} flip", aggregator, 6, "attack.kind=sign_flip", "attack.share=0.3",
                                     f"attack.scale={scale}", attack=lambda u, *_: [-scale * value for value in u])
                self.assertTrue(any(True in record["malicious"] for record in taken))
                self.compare(f"{aggregator} noise", aggregator, 6, "attack.kind=noise", "attack.clients=[0,2,3]",
                             f"attack.scale={scale}", attack=lambda u, *of: noisy(u, scale, *of))

    @plain
    def test_malicious_clients_are_drawn_by_the_seed(self):
        for seed, share in (1, 0.3), (2, 0.3), (3, 1), (4, 0.04):
            self.federate(f"{seed}", *MLP, f"seed={seed}", "clients_per_round=12", "rounds=2",
                          "attack.kind=label_flip", f"attack.share={share}")
            first, second = ({c for c, bad in zip(r["client"], r["malicious"]) if bad}
                             for r in self.records(f"{seed}", "participants.jsonl"))
            places = permutation(seed, CLIENT, 2, 12)
            self.assertEqual(first, {c for c in range(12) if places[c] < round(share * 12)})
            self.assertEqual(first, second)
        self.federate("honest", *MLP, "rounds=1")
        self.assertNotIn("malicious", self.records("honest", "participants.jsonl")[0])

    def test_a_client_that_flips_labels_trains_like_one_whose_labels_are_wrong(self):
        classes, bad = 5, [1, 4]
        data = [[float_of(self.draw.uniform(-1, 1)) for _ in range(3)] + [i % classes] for i in range(60)]
        folder = self.folder / "data"
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.label=y", "dataset.standardise=false", "model=mlp",
                 "model.hidden=[6]", "total_clients=6", "clients_per_round=4", "rounds=4", "training.batch_size=4",
                 "federate.checkpoint_every_rounds=4", "method=topk_loss"]
        self.write_data(folder, data)
        self.federate("flips", *words, "attack.kind=label_flip", f"attack.clients={bad}".replace(" ", ""))
        self.federate("honest", *words)
        parts = self.partition("flips")
        for i in (i for client in bad for i in parts[client]):
            data[i][-1] = classes - 1 - data[i][-1]
        (folder / "train.csv").write_text("x0,x1,x2,y\n" + "".join(",".join(map(repr, row)) + "\n" for row in data))
        self.federate("wrong", *words)
        runs = "flips", "wrong", "honest"
        models = [tensors.read(self.checkpoint(run, 4) / "model.safetensors")[0] for run in runs]
        self.assertEqual(models[0], models[1])
        self.assertNotEqual(models[0], models[2])

    def test_running_statistics_are_not_attacked(self):
        """An attack on running statistics would make variances negative."""
        words = [*SMALL, "model=lightcnn", "model.width=4", "model.norm=batch"]
        self.federate("run", *words, "attack.kind=sign_flip", "attack.share=0.5", "attack.scale=5")
        values, _ = tensors.read(self.checkpoint("run", 4) / "model.safetensors")
        for name, (_, _, numbers) in values.items():
            if "running_var" in name:
                self.assertGreater(min(numbers), 0, name)

    def test_attacks_that_make_no_sense_are_refused(self):
        for words, *texts in (["attack.kind=noise"], "no client is malicious"), \
                             (["attack.share=0.2"], "'attack.share' has no effect with attack.kind=none"), \
                             (["attack.kind=noise", "attack.clients=[12]"], "attack.clients has 12, which is no client",
                              "clients are numbered from 0 to 11"), \
                             (["attack.kind=noise", "attack.clients=[0.5]"], "attack.clients has 0.5"), \
                             (["attack.kind=noise", "attack.clients=[1]", "attack.share=0.5"], "both name"), \
                             (["attack.kind=label_flip", "attack.share=0.5", "attack.scale=2"],
                              "'attack.scale' has no effect with attack.kind=label_flip"):
            self.assert_error(self.federate("run", *MLP, *words, status=USAGE), *texts)
        folder = self.folder / "numbers"
        self.write_data(folder, [[0.5, 1.5]] * 20)
        result = self.federate("run", "dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "loss=mse",
                               "model=mlp", "total_clients=4", "clients_per_round=2", "attack.kind=label_flip",
                               "attack.share=0.5", status=USAGE)
        self.assert_error(result, "attack.kind=label_flip needs classes")


def median(updates):
    return [statistics.median(values) for values in zip(*updates.values())]


def trimmed_mean(updates, byzantine):
    return [statistics.fmean(sorted(values)[byzantine:len(updates) - byzantine]) for values in zip(*updates.values())]


def nearest(updates, byzantine):
    """Returns the clients by Krum's score: the sum of the squared distances to the n - f - 2 nearest others."""
    def score(client):
        distances = sorted(sum((a - b) ** 2 for a, b in zip(updates[client], updates[other]))
                           for other in updates if other != client)
        return sum(distances[:len(updates) - byzantine - 2])
    return sorted(updates, key=lambda client: (score(client), client))


def krum(updates, byzantine=1):
    return updates[nearest(updates, byzantine)[0]]


def multi_krum(updates, byzantine, chosen=None):
    best = nearest(updates, byzantine)[:chosen or len(updates) - byzantine]
    return [statistics.fmean(values) for values in zip(*(updates[client] for client in best))]


def uniform(updates):
    return [statistics.fmean(values) for values in zip(*updates.values())]


def noisy(update, scale, seed, client, number):
    """Adds normal noise by Box and Muller. The weights are the first parameter, and the bias is the second."""
    key = random4(seed, CLIENT, 2, client, 0)
    out = []
    for parameter, values in enumerate((update[:-1], update[-1:])):
        for at, value in enumerate(values):
            four = [x / 2 ** 32 for x in random4(key[0] << 32 | key[1], CLIENT, 256 + parameter, at // 4, number)]
            pair = at % 4 // 2 * 2
            radius, angle = math.sqrt(-2 * math.log(1 - four[pair])), 2 * math.pi * four[pair + 1]
            out.append(value + scale * radius * (math.sin(angle) if at % 2 else math.cos(angle)))
    return out


RESULT = {"uniform": uniform, "median": median, "trimmed_mean": trimmed_mean, "krum": krum,
          "multi_krum": multi_krum}

if __name__ == "__main__":
    main()
