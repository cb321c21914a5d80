"""Tests the simulated world of federations: its figures equal plain loops over the formulas of
docs/guide/federated_world.md, written here in Python with a separate Philox; they do not depend on how a run is
executed; bad traces are refused."""

import json
import math
import random
import re
import struct

import tensors
from ranks import Ranks
from support import FAILED, NO_FIT, USAGE, main, plain
from test_federate import MLP, attempts

PLAYED = [*MLP, "dataset.train_count=480", "federate.train=false", "federate.checkpoint_every_rounds=1"]
NETWORKS = {"moderate": [(30, 10, 10, .3)], "satellite": [(600, 50, 5, 1.5)], "very_poor": [(400, 100, .075, 1)],
            "congested_heavy": [(150, 60, 2, 6)],
            "dynamic": [(2, 1, 100, .01), (20, 5, 100, .1), (30, 10, 10, .3), (120, 30, 1, .5)], "none": []}
WORLD = 12  # the random stream that the world uses
SPEED, CHANNEL, WALK, NETWORK, DAY, TURN, PRESENCE = range(1, 8)


def philox(seed, stream, item, block):
    """Returns uniform numbers by Philox4x32-10, with the counter and key layout of brim/random.h."""
    low = 0xFFFFFFFF
    c = [block, item & low, item >> 32, WORLD << 24 | stream]
    k = [seed & low, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & low, a >> 32 ^ c[3] ^ k[1], a & low]
        k = [k[0] + 0x9E3779B9 & low, k[1] + 0xBB67AE85 & low]
    return [(x + 0.5) / 2**32 for x in c]


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class World:
    """The formulas of the simulated world, for one configuration."""

    def __init__(self, case, costs, samples):
        self.case, self.samples = case, samples
        self.batch, self.batch_flops, self.update_flops, self.look_flops, self.bytes = costs[:5]
        self.up_bytes = costs[-1]  # less if updates are compressed
        self.clients = len(samples)
        self.gflops = [self.speed(k) for k in range(self.clients)]
        self.channels = []

    def speed(self, k):
        u = philox(self.case["seed"], SPEED, k, 0)
        normal = math.sqrt(-2 * math.log(u[0])) * math.cos(2 * math.pi * u[1])
        return single(self.case["gflops"] * math.exp(self.case["sigma"] * normal))

    def channel(self, k, number):
        while len(self.channels) <= number:
            r = len(self.channels) - 1
            if r < 0:
                now = [.5 + .5 * philox(self.case["seed"], CHANNEL, i, 0)[0] for i in range(self.clients)]
            else:
                now = []
                for i, was in enumerate(self.channels[-1]):
                    at = was + .05 * (2 * philox(self.case["seed"], WALK, i, r // 4)[r % 4] - 1)
                    now.append(2 - at if at > 1 else 1 - at if at < .5 else at)
            self.channels.append([single(x) for x in now])
        return self.channels[number][k]

    def phases(self, k, number, attempt=0, start=None):
        """Returns a client's phases. `start`: the number of the client's start, if rounds are asynchronous."""
        u = philox(self.case["seed"], attempt << 4 | TURN, k, number if start is None else start)
        networks = NETWORKS[self.case["network"]]
        transfer = [0, 0]
        if networks:
            chosen = philox(self.case["seed"], NETWORK, k, number // 4)[number % 4] if len(networks) > 1 else 0
            latency, jitter, mbit, loss = networks[int(len(networks) * chosen)]
            rate = mbit * 1e6 / 8 * self.channel(k, number) * (1 - loss / 100)
            transfer = [max(0, latency / 1e3 + jitter / 1e3 * (2 * x - 1)) + sent / rate
                        for x, sent in zip(u, (self.bytes, self.up_bytes))]
        n = self.samples[k]
        work = self.batch_flops * n / self.batch + self.update_flops * math.ceil(n / self.batch)
        work *= self.case["epochs"]
        if self.case["aggregator"] == "qfedavg":
            work += self.look_flops * n / self.batch
        return [transfer[0], work / (1e9 * self.gflops[k]), transfer[1]], u[2], u[3]

    def play(self, selected, number, attempt=0):
        """Returns the expense of each client, its outcome, and the duration of the round."""
        turns = []
        for k in selected:
            phases, drop, moment = self.phases(k, number, attempt)
            drops = drop < self.case["dropout"]
            seconds = sum(phases) * (moment if drops else 1)
            why = "dropout" if drops else ""
            if self.case["deadline"] and seconds > self.case["deadline"]:
                why = "late"
            turns.append([k, seconds, why, phases])
        for turn in sorted((t for t in turns if not t[2]), key=lambda t: t[1])[self.case["wanted"]:]:
            turn[2] = "surplus"
        whys = [t[2] for t in turns]
        end = max([t[1] for t in turns if t[2] == "" or t[2] == "dropout" and "surplus" not in whys], default=0)
        if "late" in whys and "surplus" not in whys:
            end = self.case["deadline"]
        joules = total = 0
        for turn in turns:
            turn[1], watts, sent = self.spend(turn[3], min(turn[1], end))
            joules, total = joules + watts, total + sent
        return turns, end, joules, total

    def spend(self, phases, seconds):
        left, parts = seconds, []
        for phase in phases:
            parts.append(min(phase, left))
            left -= parts[-1]
        whole = seconds >= sum(phases)
        if whole:
            parts = phases
        shares = [1 if whole or not p and i == 0 else 0 if not part else part / p
                  for i, (p, part) in enumerate(zip(phases, parts))]
        sent = math.floor(shares[0] * self.bytes + shares[2] * self.up_bytes)
        return sum(parts), parts[0] + parts[2] + 5 * parts[1], sent

    def there(self, k, number, look, clock):
        kind = self.case["availability"]
        if kind == "bernoulli":
            return philox(self.case["seed"], look * 100 << 4 | PRESENCE, k // 4, number)[k % 4] < self.case["share"]
        if kind == "day":
            day = clock / self.case["day"] + philox(self.case["seed"], DAY, k, 0)[0]
            return day - math.floor(day) < self.case["share"]
        return True

    def gather(self, number, clock):
        """Returns the clients that are available, and the time when there are enough of them."""
        look = 0
        while True:
            there = {k for k in range(self.clients) if self.there(k, number, look, clock)}
            if len(there) >= (self.case["wanted"] if self.case["too_few"] == "wait" else 1):
                return there, clock
            look, clock = look + 1, clock + 60


def words_of(case):
    share = "world.day_share" if case["availability"] == "day" else "world.probability"
    return [f"seed={case['seed']}", f"network={case['network']}", "world.simulate=true",
            f"world.gflops={case['gflops']}", f"world.speed_sigma={case['sigma']}", f"world.dropout={case['dropout']}",
            f"world.availability={case['availability']}", f"{share}={case['share']}",
            f"world.day_seconds={case['day']}", f"world.too_few={case['too_few']}",
            f"federate.deadline_seconds={case['deadline']}", f"federate.over_selection={case['over']}",
            f"federate.local_epochs={case['epochs']}", f"aggregator={case['aggregator']}",
            f"federate.compression={case['compression']}",
            f"clients_per_round={case['wanted']}"]


def costs_of(out):
    found = re.search(r"simulated world: a batch of (\d+) samples is (\d+) operations, an update (\d+), a loss of that "
                      r"batch (\d+); the model is (\d+) bytes(?:, a compressed update (\d+))?", out)
    return [int(x) for x in found.groups() if x]


class FederateWorld(Ranks):
    def rounds(self, run):
        return [json.loads(line) for line in self.read(run, "participants.jsonl").splitlines()]

    def training(self, run):
        return [r for r in self.records(run) if r["split"] == "train"]

    def samples(self, run, clients):
        counts = [0] * clients
        for line in self.read(run, "partition.csv").splitlines()[1:]:
            counts[int(line.split(",")[0])] += 1
        return counts

    # ---- the right numbers ----

    @plain
    def test_figures_are_those_of_plain_loops(self):
        roll = random.Random(5)
        met = set()
        for number in range(12):
            case = {"seed": roll.randint(1, 10**6), "network": roll.choice(list(NETWORKS)),
                    "gflops": roll.choice([.0001, .01]), "sigma": roll.choice([0, .5, 1]),
                    "dropout": roll.choice([0, .2]), "deadline": 0, "tight": roll.choice([0, 1.2]),
                    "over": roll.choice([0, .5]), "epochs": roll.randint(1, 3), "wanted": roll.randint(3, 6),
                    "availability": roll.choice(["always", "bernoulli", "day"]), "share": roll.choice([.3, .6]),
                    "day": 1000, "too_few": roll.choice(["wait", "go_on"]),
                    "aggregator": ["fedavg", "qfedavg", "fednova"][number % 3],
                    "compression": ["none", "quantize", "sign", "top_k"][number % 4]}
            with self.subTest(**case):
                met |= self.check(f"run {number}", case)
        self.assertLessEqual({"", "dropout", "late", "surplus", "waited"}, met)

    def check(self, run, case):
        words = [*PLAYED, "partition=dirichlet"]
        result = self.federate(f"{run} of all", *words, *words_of(case), "rounds=1")
        world = World(case, costs_of(result.out), self.samples(f"{run} of all", 12))
        usual = sorted(sum(world.phases(k, 0)[0]) for k in range(12))
        case["deadline"] = case["tight"] * usual[6]
        result = self.federate(run, *words, *words_of(case), "rounds=9")
        clock, met = 0, set()
        for line, record in zip(self.rounds(run), self.training(run)):
            number = line["round"] - 1
            before = clock
            there, clock = world.gather(number, clock)
            met |= {"waited"} if clock > before else set()
            if re.search(rf"round {number + 1}: \d+ attempts until", result.err):  # once more, with other clients
                clock = record["simulated_clock"]
                continue
            self.assertEqual(f"round {number + 1}: waited {clock - before:g} simulated seconds" in result.err,
                             clock > before)
            self.assertEqual(f"round {number + 1}: continues with {len(there)} available clients" in result.err,
                             len(there) < case["wanted"])
            turns, end, joules, total = world.play(line["client"], number)
            clock += end
            self.assertLessEqual(set(line["client"]), there)
            self.assertEqual(line["left_out"], [t[2] for t in turns])
            self.assertEqual(line["arrived"], [not t[2] for t in turns])
            self.assert_near(line["seconds"], [t[1] for t in turns])
            self.assert_near([record["simulated_seconds"], record["simulated_clock"], record["joules"]],
                             [clock - before, clock, joules])
            self.assertEqual(record["bytes"], total)
            self.assertIsNone(record["loss"])
            met |= set(line["left_out"])
        self.assertEqual(len(self.rounds(run)), 9)
        summary, records = self.summary(run), self.training(run)
        self.assertEqual(summary["simulated_seconds"], records[-1]["simulated_clock"])
        self.assert_near([summary["joules"]], [sum(r["joules"] for r in records)])
        self.assertEqual(summary["bytes"], sum(r["bytes"] for r in records))
        return met

    def assert_near(self, are, should):
        for a, b in zip(are, should, strict=True):
            self.assertTrue(math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-12), (are, should))

    @plain
    def test_operations_and_bytes_follow_from_the_model(self):
        """A layer has one product in the forward pass. In the backward pass it has one for the weights and, except for
        the first layer, one for the input."""
        result = self.federate("run", *PLAYED, "world.simulate=true", "model.hidden=[90,70]", "training.batch_size=16",
                               "rounds=1")
        batch, flops, _, _, size = costs_of(result.out)
        layers = [64, 90, 70, 4]
        products = sum(2 * a * b for a, b in zip(layers, layers[1:]))
        expected = batch * (3 * products - 2 * 64 * 90)
        self.assertEqual(batch, 16)
        self.assertGreaterEqual(flops, expected)
        self.assertLess(flops, 1.05 * expected)
        self.assertEqual(size, 4 * sum((a + 1) * b for a, b in zip(layers, layers[1:])))

    @plain
    def test_compressed_updates_have_fewer_bytes(self):
        """The model has layers of 64 x 9 and 9 x 4, each with a bias. Each of these tensors is sent with a scale, or
        with the places of its values."""
        words, counts = [*MLP, "world.simulate=true", "rounds=1"], [64 * 9, 9, 9 * 4, 4]
        for kind, more, values in (
                ("quantize", "federate.compression_bits=5", lambda n: 4 + math.ceil(5 * n / 8)),
                ("sign", "federate.local_epochs=1", lambda n: 4 + math.ceil(n / 8)),
                ("top_k", "federate.compression_share=0.05", lambda n: 8 * math.ceil(.05 * n))):
            with self.subTest(kind):
                result = self.federate(kind, *words, f"federate.compression={kind}", more)
                whole, back = costs_of(result.out)[-2:]
                self.assertEqual([whole, back], [4 * sum(counts), sum(map(values, counts))])
                self.assertEqual([r["bytes"] for r in self.training(kind)], [5 * (whole + back)])

    def test_devices_of_a_file_are_taken(self):
        (self.folder / "devices.csv").write_text("client,gflops,bandwidth_mbit\n" +
                                                 "".join(f"{k},{(k + 1) / 1000},{k + 2}\n" for k in range(12)))
        result = self.federate("run", *PLAYED, "world.devices=devices.csv", "rounds=3", "world.channel_least=1",
                               "world.channel_step=0")
        batch, flops, update, _, size = costs_of(result.out)
        samples = self.samples("run", 12)
        for line in self.rounds("run"):
            should = [2 * size / ((k + 2) * 1e6 / 8) +
                      (flops * samples[k] / batch + update * math.ceil(samples[k] / batch)) / (1e6 * single(k + 1))
                      for k in line["client"]]
            self.assert_near(line["seconds"], should)

    def test_clients_of_a_trace_train_when_they_are_there(self):
        """Client k is available in seconds 100k to 100k+250 of 1350: at most three at a time, and the round waits for
        three."""
        (self.folder / "trace.csv").write_text("client,start,end\n" +
                                               "".join(f"{k},{100 * k},{100 * k + 250}\n" for k in range(12)))
        self.federate("run", *PLAYED, "world.availability=trace", "world.trace=trace.csv", "rounds=30",
                      "clients_per_round=3", "network=satellite", "world.gflops=1e-5")
        for line, record in zip(self.rounds("run"), self.training("run")):
            self.assertEqual(len(line["client"]), 3)
            begin = (record["simulated_clock"] - max(line["seconds"])) % 1350
            for k in line["client"]:
                self.assertTrue(100 * k - 1e-6 <= begin < 100 * k + 250, (begin, line))

    # ---- the effect on training ----

    @plain
    def test_clients_that_do_not_arrive_do_not_train(self):
        """The model has the bits of a round to which the other clients were not invited."""
        words = [*MLP, "federate.checkpoint_every_rounds=1", "rounds=1", "world.dropout=0.6", "world.simulate=true"]
        self.federate("run", *words)
        line = self.rounds("run")[0]
        self.assertEqual(line["left_out"].count(""), line["arrived"].count(True))
        self.assertIn("dropout", line["left_out"])
        for loss, samples, arrived in zip(line["loss"], line["samples"], line["arrived"]):
            self.assertEqual((loss is not None, samples > 0), (arrived, arrived))
        self.assertEqual(self.training("run")[0]["samples"], sum(line["samples"]))
        there = [k for k, arrived in zip(line["client"], line["arrived"]) if arrived]
        (self.folder / "trace.csv").write_text("client,start,end\n" + "".join(f"{k},0,9\n" for k in sorted(there)))
        self.federate("invited", *words, "world.dropout=0", "world.availability=trace", "world.trace=trace.csv",
                      f"clients_per_round={len(there)}")
        self.assert_same_checkpoint("run", "invited", 1, ["model.safetensors"])
        known = tensors.read(self.checkpoint("run", 1) / "optimizer.safetensors")[0]["clients.loss"][2]
        self.assertEqual({k for k, loss in enumerate(known) if not math.isnan(loss)},
                         set(there))

    def test_a_round_to_which_too_few_arrive_begins_again(self):
        result = self.federate("run", *MLP, "world.dropout=0.7", "federate.min_clients=3", "rounds=6")
        again = re.findall(r"round (\d+): (\d+) attempts until 3 clients arrived", result.err)
        self.assertTrue(again, result.err)
        for line in self.rounds("run"):
            self.assertGreaterEqual(line["arrived"].count(True), 3)
        number = int(again[0][0])
        self.assertGreater(self.training("run")[number - 1]["simulated_seconds"],
                           max(self.rounds("run")[number - 1]["seconds"]) * 1.01)

    def test_a_round_that_no_client_can_join_ends_the_run(self):
        result = self.federate("run", *MLP, "network=satellite", "federate.deadline_seconds=0.5", status=FAILED)
        self.assert_error(result, "round 1: none of 100 attempts", "federate.deadline_seconds")

    @plain
    def test_selectors_that_ask_for_losses_pay_for_them(self):
        self.federate("random", *MLP, "network=poor", "rounds=2")
        result = self.federate("asks", *MLP, "network=poor", "rounds=2", "method=power_of_choice", "method.d=8")
        size = costs_of(result.out)[-1]
        self.assertEqual([r["bytes"] for r in self.training("random")], [10 * size] * 2)
        self.assertEqual([r["bytes"] for r in self.training("asks")], [18 * size] * 2)

    @plain
    def test_without_a_world_nothing_is_simulated(self):
        self.federate("run", *MLP, "protocol=mqtt", "network=none")
        self.assertNotIn("simulated_seconds", self.training("run")[0])
        self.assertNotIn("seconds", self.rounds("run")[0])

    @plain
    def test_a_protocol_is_a_label(self):
        result = self.federate("run", *MLP, "protocol=mqtt", "rounds=1")
        self.assertIn("protocol=mqtt is only a label", result.out)

    # ---- the same results in other ways ----

    BUSY = [*MLP, "network=dynamic", "world.dropout=0.3", "world.availability=bernoulli", "world.probability=0.7",
            "federate.over_selection=0.4", "federate.min_clients=2", "federate.deadline_seconds=0.5",
            "world.gflops=0.001", "rounds=6"]

    @plain
    def test_clients_at_a_time_and_a_resume_change_nothing(self):
        for method in "random", "topk_loss":
            words = [*self.BUSY, f"method={method}"]
            with self.subTest(method):
                self.federate(f"{method} one", *words, "parallel_clients=1")
                self.federate(f"{method} two", *words, "parallel_clients=2", "backend.threads=2")
                self.federate(f"{method} cut", *words, status=NO_FIT, env={"BRIM_FAULT": attempts(4, 12)})
                self.brim("federate", "--resume", f"{method} cut")
                for other in f"{method} two", f"{method} cut":
                    self.assert_same_checkpoint(f"{method} one", other, 6)
                    self.assert_same_records(f"{method} one", other)
                    self.assertEqual(self.rounds(f"{method} one"), self.rounds(other))

    @plain
    def test_ranks_change_nothing(self):
        self.federate("one", *self.BUSY)
        process = self.start_ranks(2, "federate", "run.dir=two", *self.BUSY)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, out + err)
        self.assert_same_checkpoint("one", "two", 6)
        self.assertEqual(self.rounds("one"), self.rounds("two"))

    @plain
    def test_playing_selects_as_training_does(self):
        """A world and a selector that use no loss give the same results without training."""
        self.federate("trained", *self.BUSY)
        self.federate("played", *self.BUSY, "federate.train=false")
        keys = "simulated_seconds", "simulated_clock", "joules", "bytes", "clients", "clients_left_out", "samples"
        for a, b in zip(self.training("trained"), self.training("played"), strict=True):
            self.assertEqual([a[key] for key in keys], [b[key] for key in keys])
        for a, b in zip(self.rounds("trained"), self.rounds("played"), strict=True):
            self.assertEqual([a["client"], a["left_out"], a["seconds"]], [b["client"], b["left_out"], b["seconds"]])

    # ---- bad input ----

    def test_bad_traces_are_refused_with_line_and_column(self):
        devices = "client,gflops\n" + "".join(f"{k},1\n" for k in range(12))
        cases = [
            ("devices", "client,speed\n0,1\n", 1, 1, "the first line must be client,gflops"),
            ("devices", devices.replace("3,1\n", ""), 5, 1, "client 3 is missing: this line is client 4's"),
            ("devices", devices.replace("11,1\n", ""), 13, 1, "client 11 is missing: the file ends"),
            ("devices", devices.replace("\n4,1", "\n4,-2"), 6, 3, "'gflops' must not be negative, got -2"),
            ("devices", devices.replace("\n4,1", "\n4,0"), 6, 3, "'gflops' must be above 0"),
            ("devices", devices.replace("\n4,1", "\n4,"), 6, 3, "'gflops' has no value"),
            ("devices", devices.replace("\n4,1", "\n4"), 6, 2, "'gflops' is missing"),
            ("devices", devices.replace("\n4,1", "\n4,1,1"), 6, 4, "a line has 2 values"),
            ("devices", devices.replace("\n4,1", "\n4,fast"), 6, 3, "'gflops' must be a number, got fast"),
            ("devices", devices + "12,1\n", 14, 1, "there is no client 12: total_clients is 12"),
            ("devices", devices + "3,1\n", 14, 1, "client 3 has a line already"),
            ("trace", "client,start,end\n", 2, 1, "the file has no clients"),
            ("trace", "client,start,end\n0,5,5\n", 2, 5, "'end' 5 is not after 'start' 5"),
            ("trace", "client,start,end\n0,1,5\n0,4,6\n", 3, 3, "'start' 4 is before the end of the previous line, 5"),
            ("trace", "client,start,end\n3,1,5\n\n2,1,5\n", 4, 1, "sort them by client"),
            ("trace", "client,start,end\n0.5,1,5\n", 2, 1, "'client' must be a whole number"),
            ("trace", "client,start,end\n99,1,5\n", 2, 1, "there is no client 99"),
        ]
        for key, text, line, column, message in cases:
            with self.subTest(message):
                (self.folder / "bad.csv").write_text(text)
                traced = ["world.availability=trace"] if key == "trace" else []
                result = self.federate("run", *PLAYED, f"world.{key}=bad.csv", *traced, status=USAGE)
                self.assert_error(result, f"bad.csv:{line}:{column}: ", message)

    def test_bad_keys_are_refused(self):
        for word, message in (("world.dropout=1.5", "'world.dropout' must be in [0,1]"),
                              ("world.gflops=-1", "'world.gflops' must be in (0,inf)"),
                              ("network.loss_percent=[100]", "'network.loss_percent' must be a list"),
                              ("network.latency_ms=[1,2]", "network.latency_ms has 2"),
                              ("world.availability=trace", "world.availability=trace needs a trace"),
                              ("world.trace=x.csv", "'world.trace' has no effect here"),
                              ("world.devices=x.csv", "cannot read 'x.csv'"),
                              ("federate.over_selection=-1", "'federate.over_selection' must be in [0,10]")):
            with self.subTest(word):
                self.assert_error(self.federate("run", *PLAYED, word, status=USAGE), message)

    @plain
    def test_old_names_are_taken(self):
        result = self.federate("run", *PLAYED, "time_budget=9", "rounds=1")
        self.assertIn("time_budget=9 is taken as federate.deadline_seconds=9", result.err + result.out)


if __name__ == "__main__":
    main()
