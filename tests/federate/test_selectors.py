"""Compares client selectors with direct implementations of their formulas: plain loops check each choice in small
random worlds, in the simplest order and without optimizations. If a selector takes the highest of several sums,
which may be rounded in another order, a sum that is equally high up to rounding is accepted. Random choices must
have the right frequencies, by chi-square at fixed seeds."""

import itertools
import math
import operator
import os
import random
import struct
import subprocess
import unittest

WORLDS = (1000 if os.environ.get("BRIM_TEST_TIER", "full") == "full" else
          30 if os.environ.get("BRIM_SANITIZE") else 100)
LARGE = WORLDS // 100  # number of worlds with 30 to 70 clients, of which at most 8 are wanted
ROUNDS = 5
NAN = math.nan
SKETCH = 64


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def philox(seed, use, stream, item):
    """Returns random numbers by Philox4x32-10, as in core/include/brim/random.h."""
    low, high = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
    c = [0, item & low, item >> 32, use << 24 | stream]
    k = [seed & low, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0] & high, 0xCD9E8D57 * c[2] & high
        c = [q >> 32 ^ c[1] ^ k[0], q & low, p >> 32 ^ c[3] ^ k[1], p & low]
        k = [k[0] + 0x9E3779B9 & low, k[1] + 0xBB67AE85 & low]
    return c


def solve(a, b):
    """Returns inv(a) b for rows `a` and `b`, by elimination with the largest pivot first."""
    size, rows = len(a), [[*row, *values] for row, values in zip(a, b)]
    for i in range(size):
        p = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[p] = rows[p], rows[i]
        for r in range(size):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [[value / row[i] for value in row[size:]] for i, row in enumerate(rows)]


class Asked:
    """The program that runs selectors."""

    def __init__(self):
        self.process = subprocess.Popen([os.environ["BRIM_ASK_SELECTOR"]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")

    def answer(self):
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "ask_selector has ended"
        return list(map(int, line.split()))

    def close(self):
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        assert status == 0, status


class World:
    """The columns that brim keeps for clients, and a selector's question in a round."""

    def __init__(self, draw, clients=None):
        self.draw = draw
        n = self.count = clients or draw.randint(1, 12)
        self.most = 8 if clients else n
        self.classes = draw.choice([0, 2, 3, 5])
        self.labels = [[draw.choice([0, 0, draw.randint(1, 9)]) for _ in range(self.classes)] for _ in range(n)]
        for row in self.labels:
            if self.classes and not any(row):
                row[draw.randrange(self.classes)] = 1
        self.samples = [sum(row) if self.classes else draw.randint(1, 30) for row in self.labels]
        self.loss, self.square, self.norm, self.accuracy = ([NAN] * n for _ in range(4))
        self.timed = draw.choice([0, 0.7, 1])
        self.last, self.times = [-1] * n, [0] * n
        self.sketch = [[0.0] * SKETCH for _ in range(n)]
        self.state = {}
        self.round = -1

    def known_time(self):
        return f32(self.draw.uniform(0.1, 9)) if self.draw.random() < self.timed else NAN

    def next_round(self):
        n, draw = self.count, self.draw
        self.round += 1
        self.seed = draw.getrandbits(64)
        self.seconds = [self.known_time() for _ in range(n)]
        self.now = [f32(draw.uniform(0, 3)) for _ in range(n)]
        self.candidates = sorted(draw.sample(range(n), draw.choice([n, draw.randint(1, n)])))
        self.wanted = draw.randint(1, min(len(self.candidates), self.most))
        self.deadline = draw.choice([0, f32(draw.uniform(0.1, 9))])

    def end_round(self, chosen):
        """Returns the outcome of the chosen clients: [(client, whether its update has arrived)]."""
        result = [(k, int(self.draw.random() < 0.8)) for k in chosen]
        for k, arrived in result:
            self.last[k] = self.round
            self.times[k] += 1
            if arrived:
                self.loss[k], self.norm[k] = (f32(self.draw.uniform(0.01, 3)) for _ in range(2))
                self.square[k] = f32(self.loss[k] ** 2 * self.draw.uniform(1, 3))
                if self.classes:  # clients have few samples, so that accuracies may be equal
                    self.accuracy[k] = f32(self.draw.randint(0, self.samples[k]) / self.samples[k])
                self.sketch[k] = [f32(self.draw.gauss(0, 1)) for _ in range(SKETCH)]
        return result

    def u(self, stream, item):
        """Returns a uniform number in (0, 1)."""
        v = philox(self.seed, 11, stream, item)
        return ((v[0] >> 6) * 2.0 ** 27 + (v[1] >> 5) + 0.5) / 2.0 ** 53

    def drawn(self, stream, client, weight):
        return math.log(self.u(stream, client)) / weight if weight > 0 else -math.inf

    def tie(self, client):
        return 1e-9 * self.u(0, client)

    def highest(self, score, count=None, among=None):
        """Returns the candidates with the highest scores. Candidates without a score come last, and of equal scores the
        lower number comes first."""
        scores = {k: score(k) for k in (self.candidates if among is None else among)}
        order = sorted(scores, key=lambda k: (-scores[k] if not math.isnan(scores[k]) else math.inf, k))
        return order[:self.wanted if count is None else count]

    def mean(self, column):
        known = [column[k] for k in self.candidates if math.isfinite(column[k])]
        return sum(known) / len(known) if known else NAN

    def loss_share(self, k):
        known = [self.loss[c] for c in self.candidates if not math.isnan(self.loss[c])]
        if self.last[k] < 0:
            return 1
        return self.loss[k] / max(known) if self.loss[k] > 0 else 0


class Selectors(unittest.TestCase):
    def setUp(self):
        self.asked = Asked()
        self.addCleanup(self.asked.close)

    def open(self, method, world, settings="{}"):
        self.asked.say("open", method, settings, world.count, world.classes, *itertools.chain(*world.labels))

    def send(self, world):
        columns = zip(world.samples, world.loss, world.square, world.norm, world.seconds, world.accuracy, world.last,
                      world.times)
        self.asked.say("columns", *itertools.chain(*columns))

    def choose(self, world, sketches=False):
        self.send(world)
        self.asked.say("losses", *world.now)
        if sketches:
            self.asked.say("sketches", *itertools.chain(*world.sketch))
        self.asked.say("select", world.round, world.wanted, world.deadline, world.seed, len(world.candidates),
                       *world.candidates)
        chosen = self.asked.answer()
        self.assertEqual(len(set(chosen)), len(chosen))
        self.assertLessEqual(set(chosen), set(world.candidates))
        self.assertTrue(1 <= len(chosen) <= world.wanted)
        return chosen

    def learn(self, world, chosen):
        result = world.end_round(chosen)
        self.send(world)
        self.asked.say("learn", world.round, len(result), *itertools.chain(*result))
        return result

    def compare(self, method, check, settings=lambda draw: {}, learned=None, rounds=ROUNDS, sketches=False):
        """Compares choices in drawn worlds. `check(world, settings, chosen)` returns the expected list, or asserts
        itself; `learned` updates the test's own state."""
        for number in range(WORLDS):
            draw = random.Random(number)
            clients = draw.randint(30, 70) if number >= WORLDS - LARGE else None
            world, given = World(draw, clients), settings(draw)
            text = "{" + ",".join(f"{key}:~{value}" for key, value in given.items()) + "}"
            self.open(method, world, text)
            for _ in range(draw.randint(1, rounds)):
                world.next_round()
                chosen = self.choose(world, sketches)
                wanted = check(world, given, chosen)
                if wanted is not None:
                    self.assertEqual(chosen, wanted, (method, number, given, world.__dict__))
                result = self.learn(world, chosen)
                if learned:
                    learned(world, given, result)

    def assert_greedy(self, world, chosen, count, gain, take):
        """Asserts that each chosen client has the highest gain of those left, up to rounding."""
        self.assertEqual(len(chosen), count)
        left = [k for k in world.candidates]
        for k in chosen:
            gains = {c: gain(c) for c in left}
            best = max(gains.values())
            self.assertGreaterEqual(gains[k], best - 1e-5 * max(1e-3, abs(best)), (k, gains))
            take(k)
            left.remove(k)

    # ---- by scores ----

    def test_the_highest_loss(self):
        self.compare("topk_loss", lambda w, _, __: w.highest(
            lambda k: 1e30 * (1 + w.u(0, k)) if w.last[k] < 0 else w.loss[k]))

    def test_the_longest_update(self):
        self.compare("gradient_norm", lambda w, _, __: w.highest(
            lambda k: 1e30 * (1 + w.u(0, k)) if w.last[k] < 0 else w.norm[k]))

    def test_power_of_choice(self):
        def check(w, s, _):
            asked = min(max(s["d"] or 2 * w.wanted, w.wanted), len(w.candidates))
            drawn = w.highest(lambda k: w.drawn(0, k, w.samples[k]), asked)
            return w.highest(lambda k: w.now[k], among=drawn)
        self.compare("power_of_choice", check, lambda draw: {"d": draw.choice([0, 3, 9])})

    def test_losses_and_turns_that_are_owed(self):
        def check(w, s, _):
            return w.highest(lambda k: s["weight"] * w.loss_share(k) + w.state.get(k, 0) + w.tie(k))

        def learned(w, s, result):
            chosen = [k for k, _ in result]
            for k in range(w.count):
                owed = w.state.get(k, 0) + s["share"] * len(chosen) / w.count - (k in chosen)
                w.state[k] = max(0, owed)
        # The rounding of 0.1 times 2 or 3 clients depends on the order; quarters are exact.
        self.compare("fairness_adjusted", check, lambda draw: {"weight": draw.choice([0, 0.5, 3]),
                                                               "share": draw.choice([0, 0.25, 1])}, learned)

    def test_epsilon_greedy(self):
        def check(w, s, _):
            greedy = sum(w.u(2, place) >= s["epsilon"] for place in range(w.wanted))
            known = [w.state[k] for k in w.candidates if k in w.state]
            mean = sum(known) / len(known) if known else 0
            best = w.highest(lambda k: w.state.get(k, mean) + w.tie(k), greedy)
            others = [k for k in w.candidates if k not in best]
            return best + w.highest(lambda k: w.u(1, k), w.wanted - greedy, others)

        def learned(w, s, result):
            for k, arrived in result:
                reward = w.loss[k] if arrived else 0
                w.state[k] = w.state[k] + s["step"] * (reward - w.state[k]) if k in w.state else reward
        self.compare("epsilon_greedy", check, lambda draw: {"epsilon": draw.choice([0, 0.3, 1]),
                                                            "step": draw.choice([0.3, 1])}, learned)

    # ---- by clients' data ----

    def test_coverage_of_classes(self):
        def check(w, s, chosen):
            has, pool = [0] * (w.classes or 1), w.highest(lambda k: w.u(0, k), max(s["pool"], w.wanted))

            def row(k):
                return w.labels[k] if w.classes else [w.samples[k]]

            def gain(k):
                more = sum(math.sqrt(h + n) - math.sqrt(h) for h, n in zip(has, row(k)))
                return more / (1 + w.times[k]) if k in pool else -math.inf

            def take(k):
                has[:] = [h + n for h, n in zip(has, row(k))]
            self.assert_greedy(w, chosen, w.wanted, gain, take)
        self.compare("label_coverage", check, lambda draw: {"pool": draw.choice([3, 100])})

    def test_maximal_marginal_relevance(self):
        def check(w, s, chosen):
            pool = w.highest(lambda k: w.loss_share(k) + w.tie(k), max(s["pool"], w.wanted))
            taken = []

            def cosine(a, b):
                ab, aa, bb = (sum(x * y for x, y in zip(w.labels[i], w.labels[j]))
                              for i, j in ((a, b), (a, a), (b, b)))
                return ab / math.sqrt(aa * bb) if ab else 0

            def gain(k):
                if k not in pool:
                    return -math.inf
                like = max((cosine(k, c) for c in taken), default=0)
                return s["lambda"] * (w.loss_share(k) + w.tie(k)) - (1 - s["lambda"]) * like
            self.assert_greedy(w, chosen, w.wanted, gain, taken.append)
        self.compare("mmr_diverse", check, lambda draw: {"lambda": draw.choice([0, 0.5, 0.9, 1]),
                                                         "pool": draw.choice([3, 100])})

    def test_clusters_in_turn(self):
        def check(w, s, _):
            mean = w.mean(w.loss) if math.isfinite(w.mean(w.loss)) else 0

            def point(k):
                if s["by"] == "labels" and w.classes:
                    return [n / w.samples[k] for n in w.labels[k]]
                return [w.loss[k] if math.isfinite(w.loss[k]) else mean]

            def away(k, centre):
                total = 0  # adds up in this order, on which the choice between two equally near clients depends
                for x, c in zip(point(k), centre):
                    total += (x - c) * (x - c)
                return total

            def nearest(k):
                return min(range(len(centres)), key=lambda c: (away(k, centres[c]), c))
            order = w.highest(lambda k: w.u(0, k), len(w.candidates))
            centres = [point(order[0])]
            while len(centres) < s["clusters"]:
                least = [min(away(k, c) for c in centres) for k in order]
                left, drawn = w.u(1, len(centres)) * sum(least), None
                for k, d in zip(order, least):
                    if left < 0:
                        break
                    drawn = k if d > 0 else drawn
                    left -= d
                if drawn is None:
                    break
                centres.append(point(drawn))
            for _ in range(10):
                groups = [[] for _ in centres]
                for k in order:
                    groups[nearest(k)].append(point(k))
                centres = [[sum(x) / len(group) for x in zip(*group)] if group else centre
                           for centre, group in zip(centres, groups)]
            groups = [[] for _ in centres]
            for k in w.highest(lambda k: w.drawn(3, k, w.samples[k]), len(w.candidates)):
                groups[nearest(k)].append(k)
            first, chosen = int(w.u(2, 0) * len(centres)), []
            for turn in range(len(w.candidates)):
                for i in range(len(centres)):
                    chosen += groups[(first + i) % len(centres)][turn:turn + 1]
            return chosen[:w.wanted]
        self.compare("cluster_balanced", check, lambda draw: {"clusters": draw.choice([1, 2, 4]),
                                                              "by": draw.choice(["labels", "loss"])}, rounds=3)

    def test_groups_that_are_plain_get_equal_parts(self):
        world = World(random.Random(1), 30)
        world.classes, world.labels = 3, [[10 * (k % 3 == c) for c in range(3)] for k in range(30)]
        world.samples = [10] * 30
        self.open("cluster_balanced", world)
        for _ in range(20):
            world.next_round()
            world.candidates, world.wanted = list(range(30)), 12
            self.assertEqual(sorted(k % 3 for k in self.choose(world)), [0] * 4 + [1] * 4 + [2] * 4)

    # ---- by time ----

    def test_a_schedule_within_the_deadline(self):
        def check(w, s, _):
            asked = min(max(s["asked"] or 2 * w.wanted, w.wanted), len(w.candidates))
            asked, mean = w.highest(lambda k: w.u(0, k), asked), w.mean(w.seconds)
            if math.isnan(mean):
                return asked[:w.wanted]
            time = {k: w.seconds[k] if math.isfinite(w.seconds[k]) else mean for k in asked}
            chosen, scheduled, left = [], 0, list(asked)
            while left and len(chosen) < w.wanted:  # the paper's loop over all remaining clients
                added = {k: s["upload"] * time[k] + max(0, (1 - s["upload"]) * time[k] - scheduled) for k in left}
                k = min(left, key=lambda k: (added[k], time[k], k))
                left.remove(k)
                if not chosen or not w.deadline or scheduled + added[k] <= w.deadline:
                    scheduled += added[k]
                    chosen.append(k)
            return chosen
        self.compare("fedcs", check, lambda draw: {"asked": draw.choice([0, 4, 100]),
                                                   "upload": draw.choice([0, 0.25, 1])})

    def test_tiers(self):
        def check(w, s, _):
            count, mean = s["tiers"], w.mean(w.seconds)
            state = w.state or {"spent": [0] * count, "before": [0] * count, "probability": [0] * count, "last": 0}
            w.state = state
            time = [k if math.isnan(mean) else t if math.isfinite(t) else mean for k, t in enumerate(w.seconds)]
            first = [sorted(time)[i * w.count // count] for i in range(count)]
            tier = [max(i for i in range(count) if i == 0 or time[k] >= first[i]) for k in range(w.count)]
            members = [[k for k in w.candidates if tier[k] == t] for t in range(count)]
            accuracy = []
            for group in members:  # a plain loop, so that equal accuracies have the same last bit
                right = answers = 0.0
                for k in group:
                    if math.isfinite(w.loss[k]):
                        right += w.samples[k] * (w.accuracy[k] if w.classes else math.exp(-w.loss[k]))
                        answers += w.samples[k]
                accuracy.append(right / answers if answers else 0)

            def with_credits():
                return [t for t in range(count) if members[t] and state["spent"][t] < s["credits"]]
            if not with_credits():
                state["spent"] = [0] * count
            may = with_credits()
            if w.round % s["interval"] == 0:
                if w.round and accuracy[state["last"]] <= state["before"][state["last"]]:
                    n = len(may)
                    state["probability"] = [0] * count
                    for i, t in enumerate(sorted(may, key=lambda t: (accuracy[t], t)), 1):
                        state["probability"][t] = (n - i) / (n * (n - 1) / 2) if n > 1 else 0
                state["before"] = accuracy
            part = [state["probability"][t] if t in may else 0 for t in range(count)]
            if sum(part) == 0:
                part = [t in may for t in range(count)]
            left = w.u(0, 0) * sum(part)
            for t in range(count):
                if part[t] and left < part[t]:
                    break
                left -= part[t]
            state["last"] = t
            state["spent"][t] += 1
            return w.highest(lambda k: w.u(1, k) - (tier[k] - t) % count)
        self.compare("tifl", check, lambda draw: {"tiers": draw.choice([1, 2, 3, 5]), "interval": draw.choice([1, 2]),
                                                  "credits": draw.choice([1, 2, 100])}, rounds=8)

    def test_oort(self):
        def check(w, s, _):
            state = w.state or {"relaxed": 0, "before": 0, "achieved": 0}
            w.state = state

            def utility(k):
                return w.samples[k] * math.sqrt(w.square[k])
            times = sorted(w.seconds[k] for k in w.candidates if math.isfinite(w.seconds[k]))
            percentile = min(100, 30 + state["relaxed"]) / 100
            limit = times[min(int(percentile * len(times)), len(times) - 1)] if times else math.inf
            limit = min(limit, w.deadline or math.inf)
            out = [k for k in w.candidates if s["most_times"] and w.times[k] >= s["most_times"]]
            out = out if len(w.candidates) - len(out) >= w.wanted else []
            known = [k for k in w.candidates if math.isfinite(w.square[k]) and k not in out]
            new = [k for k in w.candidates if not math.isfinite(w.square[k]) and k not in out]
            worth = sorted(map(utility, known))
            low = worth[0] if worth else 0
            high = worth[min(int(s["clip"] * len(worth)), len(worth) - 1)] if worth else 0

            def score(k):
                value = (min(utility(k), high) - low) / (high - low) if high > low else 1
                value += math.sqrt(0.1 * math.log(w.round + 1) / (w.last[k] + 1))
                return value * (limit / w.seconds[k]) ** 2 if w.seconds[k] > limit else value
            explored = min(int(max(0.2, 0.9 * 0.98 ** w.round) * w.wanted + 0.5), len(new))
            exploited = min(len(known), w.wanted - explored)
            explored = min(len(new), w.wanted - exploited)
            chosen = []
            if exploited:
                enough = s["cutoff"] * sorted(map(score, known))[-exploited]
                good = [k for k in known if score(k) >= enough]
                chosen = w.highest(lambda k: w.drawn(0, k, score(k)), exploited, good)
            mean = w.mean(w.seconds)

            def speed(k):
                seconds = w.seconds[k] if math.isfinite(w.seconds[k]) else mean if times else 1
                return 1 / (seconds * (1 + w.times[k]))
            return chosen + w.highest(lambda k: w.drawn(1, k, speed(k)), explored, new)

        def learned(w, s, result):
            state = w.state
            state["achieved"] += sum(w.samples[k] * math.sqrt(w.square[k]) for k, arrived in result if arrived)
            if (w.round + 1) % s["window"] == 0:
                state["relaxed"] += s["pacer_step"] * (state["before"] > state["achieved"])
                state["before"], state["achieved"] = state["achieved"], 0
        self.compare("oort", check, lambda draw: {
            "window": draw.choice([1, 2]), "pacer_step": draw.choice([5, 40]), "cutoff": draw.choice([0, 0.95]),
            "clip": draw.choice([0.5, 0.95]), "most_times": draw.choice([0, 0, 2])}, learned, rounds=8)

    # ---- by models ----

    def test_linucb(self):
        def features(w, k):
            loss, seconds = w.mean(w.loss), w.mean(w.seconds)
            samples = sum(w.samples[c] for c in w.candidates) / len(w.candidates)
            return [1, w.loss[k] / loss if math.isfinite(w.loss[k]) else 1, w.samples[k] / samples, w.last[k] < 0,
                    1 if w.last[k] < 0 else (w.round - w.last[k]) / (w.round + 1),
                    seconds / w.seconds[k] if math.isfinite(w.seconds[k]) else 1]

        def check(w, s, chosen):
            state = w.state or {"a": [[float(i == j) for j in range(6)] for i in range(6)], "b": [0.0] * 6}
            w.state = state
            inverse = solve(state["a"], [[float(i == j) for j in range(6)] for i in range(6)])
            theta = [sum(map(operator.mul, row, state["b"])) for row in inverse]

            def gain(k):
                x = features(w, k)
                unsure = math.sqrt(sum(p * q * v for p, row in zip(x, inverse) for q, v in zip(x, row)))
                return sum(p * q for p, q in zip(theta, x)) + s["alpha"] * unsure
            state["x"] = {k: features(w, k) for k in chosen}
            self.assert_greedy(w, chosen, w.wanted, gain, lambda _: None)

        def learned(w, s, result):
            losses = [w.loss[k] for k, arrived in result if arrived]
            times = [w.seconds[k] for k, _ in result if math.isfinite(w.seconds[k])]
            for k, arrived in result:
                reward = w.loss[k] * len(losses) / sum(losses) if arrived else 0
                if times and math.isfinite(w.seconds[k]):
                    reward *= min(1, sum(times) / len(times) / w.seconds[k])
                x = w.state["x"][k]
                w.state["a"] = [[w.state["a"][i][j] + x[i] * x[j] for j in range(6)] for i in range(6)]
                w.state["b"] = [b + reward * v for b, v in zip(w.state["b"], x)]
        self.compare("linucb", check, lambda draw: {"alpha": draw.choice([0, 1, 5])}, learned)

    def test_divfl(self):
        def check(w, _, chosen):
            new = w.highest(lambda k: w.u(0, k), among=[k for k in w.candidates if w.last[k] < 0])
            self.assertEqual(chosen[:len(new)], new)
            with_update = [k for k in w.candidates if math.isfinite(w.norm[k])]
            never = [k for k in w.candidates if w.last[k] >= 0 and k not in with_update]
            needed = max(0, w.wanted - len(new) - len(with_update))
            if needed:  # if new clients and those with an update are too few, the selector takes all of them
                self.assertEqual(set(chosen), {*new, *with_update, *w.highest(lambda k: w.u(0, k), needed, never)})
                return
            taken = []

            def away(a, b):
                return math.dist(w.sketch[a], w.sketch[b])
            farthest = max((away(a, b) for a in with_update for b in with_update), default=0)

            def gain(k):
                if k not in with_update:
                    return -math.inf
                before = [min((away(i, c) for c in taken), default=farthest) for i in with_update]
                return sum(max(0, b - away(i, k)) for i, b in zip(with_update, before))
            self.assert_greedy(w, chosen[len(new):], w.wanted - len(new), gain, taken.append)
        self.compare("divfl", check, rounds=8, sketches=True)

    def test_fedcor(self):
        def ask(w, s):
            """Returns the state after the selector's request for losses, if it makes one."""
            state = w.state or {"changes": [], "asked": None, "loss": {}, "times": {}}
            w.state = state
            if w.round > s["warm"] and w.round % s["every"] > 1:
                return
            if state["asked"] == w.round - 1 and w.round:
                change = {k: w.now[k] - state["loss"][k] for k in w.candidates if k in state["loss"]}
                mean = sum(change.values()) / len(change) if change else 0
                state["changes"].insert(0, [change[k] - mean if k in change else 0 for k in range(w.count)])
                state["times"] = {}
            state["asked"], state["loss"] = w.round, {k: w.now[k] for k in w.candidates}

        def check(w, s, chosen):
            ask(w, s)
            changes = w.state["changes"][:s["history"]]
            if w.round < s["warm"] or not changes:
                return w.highest(lambda k: w.u(0, k))
            weight = [0.9 ** age for age in range(len(changes))]
            there, total = w.candidates, sum(w.samples[k] for k in w.candidates)
            c = {(i, j): sum(v * x[i] * x[j] for v, x in zip(weight, changes)) / sum(weight)
                 for i in there for j in there}
            noise = s["noise"] * sum(c[i, i] for i in there) / len(there) or 1
            for i in there:
                c[i, i] += noise

            given, taken = {}, []

            def take(k):
                """Computes the covariance given the values of all taken clients: C - C(:,taken) inv(C(taken,taken))
                C(taken,:)."""
                taken.extend([] if k is None else [k])
                known = solve([[c[i, j] for j in taken] for i in taken], [[c[i, j] for j in there] for i in taken])
                for i in there:
                    for at, j in enumerate(there):
                        given[i, j] = c[i, j] - sum(c[i, t] * row[at] for t, row in zip(taken, known))

            def gain(k):
                fall = sum(w.samples[i] / total * given[i, k] for i in there) / math.sqrt(given[k, k])
                return s["beta"] ** w.state["times"].get(k, 0) * fall
            take(None)
            self.assert_greedy(w, chosen, w.wanted, gain, take)
            return None

        def learned(w, _, result):
            for k, _ in result:
                w.state["times"][k] = w.state["times"].get(k, 0) + 1
        self.compare("fedcor", check, lambda draw: {
            "warm": draw.choice([0, 1, 3]), "every": draw.choice([2, 4]), "history": draw.choice([1, 3, 8]),
            "beta": draw.choice([0.5, 1]), "noise": draw.choice([0.01, 1])}, learned, rounds=10)

    # ---- frequencies ----

    def frequencies(self, method, expected, settings="{}", prepare=lambda world: None, key=tuple, rounds=4000,
                    wanted=1, before=lambda world: None):
        """Compares the choices with probabilities by chi-square, at a level that one correct selector in 10,000
        exceeds."""
        world = World(random.Random(5), len(SAMPLES))
        world.samples, world.classes, world.labels = SAMPLES, 0, [[]] * len(SAMPLES)
        seen = dict.fromkeys(expected, 0)
        self.open(method, world, settings)
        for number in range(rounds):
            world.next_round()
            world.round, world.seed = 0, number * 0x9E3779B97F4A7C15 % 2 ** 64
            world.seconds = [NAN] * world.count
            world.candidates, world.wanted, world.deadline = list(range(world.count)), wanted, 0
            prepare(world)
            before(world)
            seen[key(self.choose(world))] += 1
        chi = sum((seen[e] - rounds * p) ** 2 / (rounds * p) for e, p in expected.items())
        free = len(expected) - 1
        limit = free * (1 - 2 / (9 * free) + 3.719 * math.sqrt(2 / (9 * free))) ** 3  # Wilson and Hilferty
        self.assertLess(chi, limit, (method, seen))

    def test_frequencies(self):
        n = len(SAMPLES)
        equal = {(k,): 1 / n for k in range(n)}
        by_samples = {(k,): SAMPLES[k] / sum(SAMPLES) for k in range(n)}
        pairs = {(a, b): SAMPLES[a] / sum(SAMPLES) * SAMPLES[b] / (sum(SAMPLES) - SAMPLES[a])
                 for a in range(n) for b in range(n) if a != b}
        self.frequencies("random", equal)
        self.frequencies("random", {(a, b): 1 / (n * (n - 1)) for a, b in pairs}, wanted=2)
        self.frequencies("proportional", by_samples)
        self.frequencies("proportional", pairs, wanted=2)
        self.frequencies("power_of_choice", by_samples, "{d:~1}")
        self.frequencies("epsilon_greedy", equal, "{epsilon:~1}")
        self.frequencies("fedcs", equal, "{asked:~1}")
        self.frequencies("fedcor", equal)
        self.frequencies("divfl", equal)
        self.frequencies("topk_loss", equal)
        self.frequencies("gradient_norm", equal)
        self.frequencies("fairness_adjusted", equal)
        self.frequencies("cluster_balanced", by_samples, "{clusters:~1}")

        def clocks(world):
            world.seconds = [float(s) for s in SAMPLES]
        slowness = sum(1 / s for s in SAMPLES)
        self.frequencies("oort", {(k,): 1 / SAMPLES[k] / slowness for k in range(n)}, prepare=clocks)

        def all_seen(world):
            world.last, world.times, world.loss = [0] * n, [1] * n, [0.5] * n
            world.square = [1.0] * n
        worth = [(min(s, max(SAMPLES)) - min(SAMPLES)) / (max(SAMPLES) - min(SAMPLES)) for s in SAMPLES]
        self.frequencies("oort", {(k,): worth[k] / sum(worth) for k in range(n) if worth[k]}, "{cutoff:~0}",
                         prepare=all_seen)

        def tiers(world):  # the last of three tiers of two clients is the worst; in round 1 accuracies have not risen
            all_seen(world)
            world.accuracy = [0.75, 0.75, 0.5, 0.5, 0.25, 0.25]  # all losses are equal
            self.open("tifl", world, "{tiers:~3,interval:~1}")
            world.round = 0
            self.choose(world)
            world.round = 1
        self.frequencies("tifl", {(2,): 1 / 6, (3,): 1 / 6, (4,): 1 / 3, (5,): 1 / 3}, prepare=tiers)


SAMPLES = [1, 2, 3, 5, 8, 13]

if __name__ == "__main__":
    unittest.main()
