"""Tests asynchronous rounds (FedBuff): clients, versions, simulated time and weights are those of an event queue and of
stochastic gradient descent in double precision, written here; brim refuses options that do not fit them."""

import heapq
import math
import random

import tensors
from client_order import permutation, random4
from federations import FederationCase
from support import FAILED, USAGE, main, plain
from test_federate import MLP, SMALL, float_of
from test_federate_aggregators import RESULT, Update
from test_federate_world import World, costs_of

SELECT = 11  # the random stream of selections
ROUNDS = 5


class Queue:
    """The clients in flight. Clients that end at the same time come in the order of their numbers."""

    def __init__(self, world, case):
        self.world, self.case, self.heap = world, case, []
        self.clock, self.starts, self.looks = 0.0, 0, 0
        self.waited = False

    def start(self, number):
        """Fills the free places with random clients that are available and not in flight."""
        places = self.case["concurrency"] - len(self.heap)
        if places == 0:
            return
        look, self.looks = self.looks, self.looks + 1
        flying = {client for _, client, *_ in self.heap}
        there = [k for k in range(self.world.clients)
                 if self.there(k, look) and k not in flying]
        seed = random4(self.case["seed"], SELECT, 0xFFFFFF, look, 0)
        order = permutation(seed[0] << 32 | seed[1], SELECT, 0, len(there)) if there else []
        for place in order[:places]:
            client = there[place]
            phases, drop, moment = self.world.phases(client, number, start=self.starts)
            drops = drop < self.case["dropout"]
            seconds = sum(phases) * (moment if drops else 1)
            seconds, joules, sent = self.world.spend(phases, seconds)
            heapq.heappush(self.heap, (self.clock + seconds, client, number, self.starts,
                                       "dropout" if drops else "", seconds, joules, sent))
            self.starts += 1

    def there(self, client, look):
        return self.world.there(client, look, 0, self.clock)

    def round(self, number):
        """Returns the clients that end in a round: client, version, start, why it is left out, seconds, joules,
        bytes."""
        ended = []
        while sum(not one[3] for one in ended) < self.case["wanted"]:
            self.start(number)
            look = self.clock + self.case["check"]
            if not self.heap or len(self.heap) < self.case["concurrency"] and self.heap[0][0] > look:
                self.clock, self.waited = look, True
                continue
            self.clock, client, version, start, why, *spent = heapq.heappop(self.heap)
            if not why and number - version > self.case["most"]:
                why = "stale"
            ended.append((client, version, start, why, *spent))
        return ended


class Async(FederationCase):
    def words(self, case):
        share = "world.day_share" if case["availability"] == "day" else "world.probability"
        return [f"seed={case['seed']}", "federate.async=true", f"federate.concurrency={case['concurrency']}",
                f"clients_per_round={case['wanted']}", f"federate.max_staleness={case['most']}",
                f"federate.staleness_exponent={case['exponent']}", f"network={case['network']}",
                f"world.gflops={case['gflops']}", f"world.speed_sigma={case['sigma']}",
                f"world.dropout={case['dropout']}", f"world.availability={case['availability']}",
                f"{share}={case['share']}", f"world.day_seconds={case['day']}", f"world.check_seconds={case['check']}",
                f"federate.local_epochs={case['epochs']}", f"aggregator={case['aggregator']}"]

    def drawn(self, draw, clients):
        return {"seed": draw.randrange(1 << 40), "concurrency": draw.randint(2, clients - 1),
                "wanted": draw.randint(1, 3), "most": draw.choice([0, 1, 2, 20]),
                "exponent": draw.choice([0, 0.5, draw.uniform(0, 2)]), "network": draw.choice(["none", "moderate"]),
                "gflops": draw.choice([1e-8, 1e-6]), "sigma": draw.uniform(0.5, 1.5),
                "dropout": draw.choice([0, 0.2]), "availability": draw.choice(["always", "bernoulli", "day"]),
                "share": 0.6, "day": 100, "check": draw.choice([2, 60]), "epochs": draw.randint(1, 2),
                "aggregator": draw.choice(["fedavg", "uniform", "fednova"])}

    @plain
    def test_weights_and_figures_are_those_of_an_event_queue(self):
        draw, met = random.Random(23), set()
        for number in range(14):
            clients = draw.randint(6, 12)
            case = self.drawn(draw, clients)
            with self.subTest(number, **case):
                met |= self.compare(draw, f"case {number}", case, clients)
        self.assertLessEqual({"", "dropout", "stale", "waited", "old", "again", "twice"}, met)

    def compare(self, draw, name, case, clients):
        folder, features, batch = self.folder / f"data of {name}", draw.randint(1, 4), draw.randint(2, 9)
        rate, server = draw.uniform(0.01, 0.1), draw.uniform(0.5, 1)
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(features + 1)] for _ in range(80)]
        self.write_data(folder, data)
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "dataset.standardise=false",
                 "loss=mse", "model=mlp", "model.hidden=[]", "backend=reference", f"total_clients={clients}",
                 "partition.sizes=lognormal", "partition.sigma=0.8", f"training.batch_size={batch}",
                 f"optimizer.lr={rate}", f"server_optimizer.lr={server}", "server_optimizer.momentum=0",
                 "training.keep_checkpoints=9", "federate.checkpoint_every_rounds=1", "observe.report=false",
                 *self.words(case)]
        costs = costs_of(self.federate(f"{name} start", *words, "rounds=0").out)
        parts, model = self.partition(f"{name} start"), self.model(f"{name} start", 0)
        self.federate(name, *words, f"rounds={ROUNDS}", f"parallel_clients={draw.randint(1, 2)}")
        queue = Queue(World(case, costs, [len(parts[k]) for k in range(clients)]), case)
        versions, met, before = [model], set(), 0.0
        training = [record for record in self.records(name) if record["split"] == "train"]
        lines = self.records(name, "participants.jsonl")
        self.assertEqual(len(lines), ROUNDS)
        for number, (line, record) in enumerate(zip(lines, training, strict=True)):
            ended = queue.round(number)
            self.compare_round(line, record, ended, number, queue.clock)
            self.assertTrue(math.isclose(record["simulated_seconds"], queue.clock - before, rel_tol=1e-6))
            before = queue.clock
            updates = []
            for client, version, start, why, *_ in ended:
                if why:
                    continue
                epochs = range(start * case["epochs"], (start + 1) * case["epochs"])
                update = Update(versions[version], [data[i] for i in parts[client]], rate, case["seed"], client, epochs,
                                batch)
                factor = (1 + number - version) ** -case["exponent"]
                update.change = [factor * value for value in update.change]
                updates.append(update)
            change = RESULT[case["aggregator"]](updates, rate, 0)
            versions.append([value + server * moved for value, moved in zip(versions[-1], change)])
            for got, wanted in zip(self.model(name, number + 1), versions[-1], strict=True):
                self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, number, got, wanted))
            arrived = [one[0] for one in ended if not one[3]]
            met |= {one[3] for one in ended} | {"old" for one in ended if not one[3] and one[1] < number}
            met |= {"twice"} if len(set(arrived)) < len(arrived) else set()
            met |= {"again"} if number and set(arrived) & set(lines[number - 1]["client"]) else set()
        return met | ({"waited"} if queue.waited else set())

    def compare_round(self, line, record, ended, number, clock):
        client, version, _, why, seconds, joules, sent = zip(*ended)
        self.assertEqual([line["client"], line["version"], line["left_out"]],
                         [list(client), list(version), list(why)])
        self.assertEqual(line["arrived"], [not one for one in why])
        for got, wanted in zip(line["seconds"], seconds, strict=True):
            self.assertTrue(math.isclose(got, wanted, rel_tol=1e-7), (got, wanted))
        stale = [number - v for v, one in zip(version, why) if not one]
        self.assertTrue(math.isclose(record["simulated_clock"], clock, rel_tol=1e-7))
        self.assertTrue(math.isclose(record["joules"], sum(joules), rel_tol=1e-7))
        self.assertEqual(record["bytes"], sum(sent))
        self.assertTrue(math.isclose(record["staleness"], sum(stale) / len(stale), abs_tol=1e-12))
        self.assertEqual([record["staleness_max"], record["clients_stale"], record["clients_left_out"]],
                         [max(stale), why.count("stale"), sum(map(bool, why))])

    @plain
    def test_one_client_in_flight_is_federated_averaging(self):
        words = [*MLP, "clients_per_round=1", "network=dynamic", "partition=dirichlet", "training.batch_size=8"]
        self.federate("sync", *words)
        self.federate("async", *words, "federate.async=true")
        self.assert_same_checkpoint("sync", "async", 4, ["model.safetensors"])
        keys = "client", "loss", "arrived", "seconds", "left_out"
        for a, b in zip(self.records("sync", "participants.jsonl"), self.records("async", "participants.jsonl")):
            self.assertEqual([a[key] for key in keys], [b[key] for key in keys])

    @plain
    def test_variances_of_batch_norm_stay_positive(self):
        """A client that arrives twice from the same start would subtract its change of the variance twice."""
        self.federate("run", *SMALL, "model=lightcnn", "model.width=4", "model.norm=batch", "partition=dirichlet",
                      "partition.alpha=0.5", "training.batch_size=8", "federate.async=true", "federate.concurrency=3",
                      "federate.max_staleness=1", "world.speed_sigma=2", "server_optimizer=adam", "method=divfl",
                      "total_clients=3", "clients_per_round=2", "rounds=8")
        values, _ = tensors.read(self.checkpoint("run", 8) / "model.safetensors")
        variances = [number for name, (_, _, numbers) in values.items() if "running_var" in name for number in numbers]
        self.assertGreater(len(variances), 0)
        self.assertGreater(min(variances), 0)

    @plain
    def test_playing_selects_as_training_does(self):
        words = [*MLP, "federate.async=true", "federate.concurrency=8", "world.dropout=0.2"]
        self.federate("trained", *words)
        self.federate("played", *words, "federate.train=false")
        keys = "client", "version", "seconds", "left_out"
        for a, b in zip(self.records("trained", "participants.jsonl"), self.records("played", "participants.jsonl")):
            self.assertEqual([a[key] for key in keys], [b[key] for key in keys])

    def test_updates_that_are_too_stale_are_reported(self):
        words = [*MLP, "federate.async=true", "federate.concurrency=8", "federate.max_staleness=0", "rounds=8"]
        result = self.federate("run", *words)
        for line in self.records("run", "participants.jsonl"):
            stale = line["left_out"].count("stale")
            self.assertEqual(f"round {line['round']}: left out {stale} update{'s' * (stale > 1)} more than 0 rounds "
                             "old (federate.max_staleness)" in result.err, stale > 0)
            self.assertEqual({v for v, out in zip(line["version"], line["left_out"]) if not out}, {line["round"] - 1})

    @plain
    def test_the_plan_counts_the_versions(self):
        """The run keeps a version for each client in flight, but at most max_staleness, and the present one. Each has 4
        bytes for each value of the model."""
        values, words = 64 * 9 + 9 + 9 * 4 + 4, ["--config-name", "federate", "plan", "--json", *MLP]

        def plan(*more):
            return self.brim(*words, *more).json
        plain = plan()
        self.assertEqual(plain["host"]["versions_bytes"], 0)
        for flights, most, kept in (7, 3, 4), (7, 20, 8), (7, 0, 0):
            other = plan("federate.async=true", f"federate.concurrency={flights}", f"federate.max_staleness={most}")
            self.assertEqual(other["host"]["versions_bytes"], 4 * values * kept)
            self.assertEqual(other["peak_bytes"], plain["peak_bytes"])
        self.assertEqual(plan("federate.async=true", "federate.train=false")["host"]["versions_bytes"], 0)

    def test_a_round_without_enough_arrivals_ends_the_run(self):
        result = self.federate("run", *MLP, "federate.async=true", "world.dropout=1", status=FAILED)
        self.assert_error(result, "round 1: 0 of 5 updates arrived before 105 clients had dropped out or were too "
                                  "stale", "lower world.dropout, or raise federate.max_staleness")
        (self.folder / "trace.csv").write_text("client,start,end\n0,0,1\n1,9e9,1e10\n")
        result = self.federate("other", *MLP, "federate.async=true", "world.availability=trace",
                               "world.trace=trace.csv", "clients_per_round=2", "world.gflops=1e-5", status=FAILED)
        self.assert_error(result, "no client could start in 600000 simulated seconds", "change world.availability")

    def test_what_cannot_be_combined_is_refused(self):
        words = [*MLP, "federate.async=true"]
        for key, message in (
                ("federate.deadline_seconds=3", "a round has no start from which clients could be late"),
                ("world.too_few=go_on", "a place stays free until a client is available"),
                ("federate.over_selection=0.1", "a round takes the first updates of all clients in flight"),
                ("federate.local=scaffold", "the controls of client and server would be of different rounds"),
                ("federate.norm_buffers=keep", "clients have no state"),
                ("federate.local=feddyn", "the controls of client and server would be of different rounds"),
                ("federate.local_parameters=x", "clients have no state"),
                ("federate.personal=ditto", "clients have no state"),
                ("federate.error_feedback=true", "clients have no state"),
                ("privacy.clip_norm=1", "epsilon is computed for clients that are drawn in each round"),
                ("aggregator=median", "it compares updates, which start from different models here"),
                ("aggregator=qfedavg", "it needs the losses of all clients under one model"),
                ("method=power_of_choice", "it asks clients for their losses before a round"),
                ("method=round_robin", "its turns are those of rounds whose clients start together")):
            with self.subTest(key):
                self.assert_error(self.federate("run", *words, key, status=USAGE), message,
                                  "cannot be combined with federate.async=true", f": {key}")
        self.assert_error(self.federate("run", *words, "federate.concurrency=13", status=USAGE),
                          "federate.concurrency 13 is more than the 12 clients of total_clients")
        self.assert_error(self.federate("run", *words, "world.simulate=false", status=USAGE),
                          "world.simulate=false has no effect: federate.async switches", ": world.simulate=false")
        for key in "federate.concurrency=3", "federate.max_staleness=3", "federate.staleness_exponent=1":
            self.assert_error(self.federate("run", *MLP, key, status=USAGE),
                              f"'{key.split('=')[0]}' has no effect without federate.async=true")


if __name__ == "__main__":
    main()
