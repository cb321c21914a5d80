"""Tests aggregators of federations: their results are those of their papers' formulas, computed here by plain loops in
double precision, over rounds of clients that differ in size and in their numbers of steps."""

import math
import random
import struct

import states
from client_order import CLIENT, client_order, random4
from federations import FederationCase
from support import USAGE, main
from test_federate import MLP, float_of, gradient_of

ROUNDS = 5


class Aggregators(FederationCase):
    def setUp(self):
        super().setUp()
        self.draw = random.Random(self.id())

    def compare(self, name, aggregator, *words, q=1.0, large=None, most=4, compress=None, **local):
        """Compares a linear regression whose clients take several steps of small batches. Partition, sizes, rates,
        epochs and the clients of a round are drawn. Client `large` has samples so large that it diverges. `most`: the
        most features."""
        draw = self.draw
        seed, clients, batch = draw.randrange(1 << 40), draw.randint(4, 9), draw.randint(2, 9)
        epochs, rate, server = draw.randint(2, 3), draw.uniform(0.01, 0.1), draw.uniform(0.5, 1)
        folder, rows, features = self.folder / f"data of {name}", draw.randint(60, 120), draw.randint(1, most)
        data = [[float_of(draw.uniform(-1, 1)) for _ in range(features + 1)] for _ in range(rows)]
        self.write_data(folder, data)
        words = ["dataset=csv", f"dataset.path={folder}", "dataset.targets=[y]", "dataset.standardise=false",
                 "loss=mse", "model=mlp", "model.hidden=[]", "backend=reference", f"seed={seed}",
                 f"total_clients={clients}", f"clients_per_round={draw.randint(2, clients)}",
                 "partition.sizes=lognormal", "partition.sigma=0.8", f"training.batch_size={batch}",
                 f"optimizer.lr={rate}", f"federate.local_epochs={epochs}", f"server_optimizer.lr={server}",
                 "server_optimizer.momentum=0", "training.keep_checkpoints=9", "federate.checkpoint_every_rounds=1",
                 f"aggregator={aggregator}", *words]
        self.federate(f"{name} start", *words, "rounds=0")
        parts, model, steps = self.partition(f"{name} start"), self.model(f"{name} start", 0), set()
        for i in parts.get(large, []):
            data[i] = [64 * value for value in data[i]]
        self.write_data(folder, data)
        self.federate(name, *words, f"rounds={ROUNDS}", f"parallel_clients={draw.randint(1, 2)}")
        for number, record in enumerate(self.records(name, "participants.jsonl")):
            arrived = []
            for client, has_arrived in zip(record["client"], record["arrived"]):
                self.assertFalse(client == large and has_arrived)
                if client == large:
                    continue
                rows = [data[i] for i in parts[client]]
                update = Update(model, rows, rate, seed, client, range(number * epochs, (number + 1) * epochs), batch,
                                **local)
                steps.add(update.steps)
                if compress:
                    update.change = compress(update.change, seed, client, number)
                if has_arrived:
                    arrived.append(update)
                    if isinstance(compress, Feedback):
                        compress.keep(client)
            change = RESULT[aggregator](arrived, rate, q)
            model = [value + server * moved for value, moved in zip(model, change)]
            for got, wanted in zip(self.model(name, number + 1), model):
                self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, number, got, wanted))
        if not compress:
            self.assertGreater(len(steps), 1)
        return self.records(name, "participants.jsonl")

    def test_fedavg_and_uniform(self):
        for aggregator in "fedavg", "uniform":
            for case in range(3):
                self.compare(f"{aggregator} {case}", aggregator)

    def test_q_fedavg(self):
        for case, q in enumerate((0, 0.5, 1, 2, 5)):
            self.compare(f"qfedavg {case}", "qfedavg", f"aggregator.q={q}", q=q)

    def test_fednova(self):
        for case in range(3):
            self.compare(f"fednova {case}", "fednova")

    def test_fednova_with_momentum_and_fedprox(self):
        for case in range(3):
            momentum, mu = self.draw.uniform(0.3, 0.95), self.draw.uniform(0.1, 2)
            self.compare(f"momentum {case}", "fednova", f"optimizer.momentum={momentum}", momentum=momentum)
            self.compare(f"fedprox {case}", "fednova", "federate.local=fedprox", f"federate.mu={mu}", mu=mu)

    def test_clients_that_do_not_arrive_do_not_count(self):
        for aggregator in RESULT:
            taken = self.compare(f"{aggregator} away", aggregator, "world.dropout=0.4")
            self.assertTrue(any(False in record["arrived"] for record in taken))

    def test_clients_that_diverge_do_not_count(self):
        for aggregator in RESULT:
            words = ["aggregator.q=0.5"] if aggregator == "qfedavg" else []
            taken = self.compare(f"{aggregator} large", aggregator, *words, q=0.5, large=1)
            self.assertTrue(any(1 in record["client"] for record in taken))

    def test_compressed_updates(self):
        """The aggregator gets the compressed updates: q-FedAvg uses their norms."""
        for aggregator in RESULT:
            bits, share = self.draw.randint(2, 10), self.draw.uniform(0.05, 0.6)
            for kind, words, compress in (
                    ("quantize", [f"federate.compression_bits={bits}"], Quantize(bits)), ("sign", [], signs),
                    ("top_k", [f"federate.compression_share={share}"], TopK(share))):
                self.compare(f"{aggregator} {kind}", aggregator, f"federate.compression={kind}", *words, most=20,
                             compress=by_parameter(compress))

    def test_clients_send_later_what_compression_left_out(self):
        """Error feedback: a client keeps the part that compression left out of its last update that arrived, even if a
        later update does not arrive. Some clients are lost in the simulated world, others diverge."""
        for aggregator in "fedavg", "qfedavg":
            for number, more in enumerate(([], ["world.dropout=0.4"])):
                bits, share = self.draw.randint(2, 6), self.draw.uniform(0.05, 0.6)
                for kind, words, compress in (
                        ("quantize", [f"federate.compression_bits={bits}"], Quantize(bits)), ("sign", [], signs),
                        ("top_k", [f"federate.compression_share={share}"], TopK(share))):
                    name, feedback = f"{aggregator} {kind} {number}", Feedback(by_parameter(compress))
                    self.compare(name, aggregator, f"federate.compression={kind}", "federate.error_feedback=true",
                                 *words, *more, most=20, compress=feedback, large=0 if number == 0 else None)
                    kept = states.read(self.folder / name, self.checkpoint(name, ROUNDS), "d")
                    self.assertEqual(kept.keys(), feedback.left.keys())
                    for client, values in kept.items():
                        for got, wanted in zip(sorted(values), sorted(feedback.left[client]), strict=True):
                            self.assertTrue(math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-9), (name, client))

    def test_quantized_updates_are_right_in_the_mean(self):
        """The seed decides how a value is rounded. Over many seeds the mean is the value."""
        change, mean, count = [0.3, -0.7, 0.05, 1.0, 0.0], [0.0] * 5, 4000
        for seed in range(count):
            mean = [m + q / count for m, q in zip(mean, Quantize(2)(change, 0, seed, 3, 1))]
        for got, wanted in zip(mean, change):
            self.assertLess(abs(got - wanted), 5 * 0.5 / math.sqrt(count))

    def test_an_unknown_aggregator_is_refused_with_the_known_ones(self):
        result = self.federate("run", *MLP, "aggregator=fedawg", status=USAGE)
        self.assert_error(result, "no option 'fedawg' in group 'aggregator'", "did you mean 'fedavg'?",
                          "fedavg fednova krum median multi_krum qfedavg trimmed_mean uniform")


class Update:
    """The change that a client's steps of stochastic gradient descent make, and its figures for aggregators."""

    def __init__(self, model, rows, rate, seed, client, epochs, batch, momentum=0.0, mu=0.0):
        local, velocity = list(model), [0.0] * len(model)
        self.steps, self.samples = 0, len(rows)
        self.loss = sum((sum(w * v for w, v in zip(model, x)) + model[-1] - y) ** 2 for *x, y in rows) / len(rows)
        for epoch in epochs:
            order = client_order(seed, client, epoch, len(rows))
            for at in range(0, len(rows), batch):
                gradient = gradient_of(local, [rows[i] for i in order[at:at + batch]], ())
                gradient = [g + mu * (w - start) for g, w, start in zip(gradient, local, model)]
                velocity = [momentum * v + g for v, g in zip(velocity, gradient)]
                local = [w - rate * v for w, v in zip(local, velocity)]
                self.steps += 1
        self.change = [w - start for w, start in zip(local, model)]
        # FedNova's norm of the vector a, in the closed forms of its paper
        self.norm = self.steps
        if momentum:
            self.norm = (self.steps - momentum * (1 - momentum ** self.steps) / (1 - momentum)) / (1 - momentum)
        elif mu:
            self.norm = (1 - (1 - rate * mu) ** self.steps) / (rate * mu)


# ---- compression of a parameter's change, of number `parameter`; as the comments of core/federate/compress.c say ----


class Quantize:
    def __init__(self, bits):
        self.levels = (1 << bits - 1) - 1

    def __call__(self, change, parameter, seed, client, number):
        most = float_above(max(map(abs, change)))
        key = random4(seed, CLIENT, 3, client, number)
        rounded = []
        for i, value in enumerate(change):
            place = abs(value) / most * self.levels
            draw = random4(key[0] << 32 | key[1], CLIENT, parameter, i // 4, 0)[i % 4] / 2 ** 32
            rounded.append(math.copysign((math.floor(place) + (draw < place % 1)) / self.levels * most, value))
        return rounded


def by_parameter(compress):
    """Compresses the weights and the bias separately."""
    return lambda change, *place: [*compress(change[:-1], 0, *place), *compress(change[-1:], 1, *place)]


class Feedback:
    """Adds the part that compression left out of a client's last update that arrived to its next one."""

    def __init__(self, compress):
        self.compress, self.left, self.now = compress, {}, {}

    def __call__(self, change, seed, client, number):
        whole = [c + e for c, e in zip(change, self.left.get(client, [0.0] * len(change)), strict=True)]
        sent = self.compress(whole, seed, client, number)
        self.now[client] = [w - s for w, s in zip(whole, sent, strict=True)]
        return sent

    def keep(self, client):
        self.left[client] = self.now[client]


def signs(change, *_):
    mean = float_of(sum(map(abs, change)) / len(change))
    return [-mean if value < 0 else mean for value in change]


class TopK:
    def __init__(self, share):
        self.share = share

    def __call__(self, change, *_):
        kept = sorted(range(len(change)), key=lambda i: -abs(change[i]))[:math.ceil(self.share * len(change))]
        return [float_of(value) if i in kept else 0.0 for i, value in enumerate(change)]


def float_above(value):
    """Returns the smallest float that is at least a positive value."""
    near = float_of(value)
    if near >= value:
        return near
    return struct.unpack("f", struct.pack("I", struct.unpack("I", struct.pack("f", near))[0] + 1))[0]


def weighted(updates, weights):
    """Returns the sum of the updates times their weights."""
    return [sum(w * u.change[k] for u, w in zip(updates, weights)) for k in range(len(updates[0].change))]


def fedavg(updates, _rate, _q):
    samples = sum(u.samples for u in updates)
    return weighted(updates, [u.samples / samples for u in updates])


def uniform(updates, _rate, _q):
    return weighted(updates, [1 / len(updates)] * len(updates))


def qfedavg(updates, rate, q):
    """Computes algorithm 2 of Li et al. (2020): the change is -sum(Delta) / sum(h)."""
    lipschitz, top, below = 1 / rate, [0.0] * len(updates[0].change), 0.0
    for u in updates:
        differences = [-lipschitz * c for c in u.change]  # gradients: the global model minus the client's
        loss = u.loss + 1e-10
        top = [t + loss ** q * d for t, d in zip(top, differences)]
        below += q * loss ** (q - 1) * sum(d * d for d in differences) + lipschitz * loss ** q
    return [-t / below for t in top]


def fednova(updates, _rate, _q):
    """Follows Wang et al. (2020): the mean of normalised updates, times the mean of their divisors."""
    samples = sum(u.samples for u in updates)
    effective = sum(u.samples / samples * u.norm for u in updates)
    return [effective * value for value in weighted(updates, [u.samples / samples / u.norm for u in updates])]


RESULT = {"fedavg": fedavg, "uniform": uniform, "qfedavg": qfedavg, "fednova": fednova}

if __name__ == "__main__":
    main()
