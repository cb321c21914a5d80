"""Tests edges between clients and server: the model has the bits of a federation without them, and time and bytes are
those of plain loops over the formulas of docs/guide/federated_world.md."""

import math
import random

from drawn import ROUNDS, DrawnCase, zeros
from ranks import Ranks
from support import FAILED, NO_FIT, USAGE, main, plain
from test_federate import KINDS, MLP, attempts
from test_federate_world import NETWORKS, PLAYED, World, costs_of, philox, words_of

EDGE = 8  # the random stream


class Edges(Ranks, DrawnCase):
    def training(self, run):
        return [record for record in self.records(run) if record["split"] == "train"]

    def trip(self, case, world, client, number):
        """Returns the seconds that the model takes from the server to the client's edge, and a sum back."""
        u = philox(case["seed"], EDGE, client % case["edges"], number)
        if not NETWORKS[case["edge_network"]]:
            return 0, 0
        networks = NETWORKS[case["edge_network"]]
        latency, jitter, mbit, loss = networks[int(len(networks) * u[2])]
        return [max(0, latency / 1e3 + jitter / 1e3 * (2 * x - 1)) +
                world.bytes / (mbit * 1e6 / 8 * (1 - loss / 100)) for x in u[:2]]

    def play(self, case, world, selected, number):
        turns = []
        for client in selected:
            phases, drop, moment = world.phases(client, number)
            down, up = self.trip(case, world, client, number)
            own, why = sum(phases), ""
            if drop < case["dropout"]:
                own, why = own * moment, "dropout"
            if case["deadline"] and down + own + up > case["deadline"]:
                why = "late"
            turns.append([down + own + up, why, client, own, down, phases])
        for turn in sorted((t for t in turns if not t[1]), key=lambda t: t[0])[case["wanted"]:]:
            turn[1] = "surplus"
        whys = [t[1] for t in turns]
        end = max([t[0] for t in turns if not t[1] or t[1] == "dropout" and "surplus" not in whys], default=0)
        if "late" in whys and "surplus" not in whys:
            end = case["deadline"]
        spent = [world.spend(phases, min(own, max(0, end - down))) for _, _, _, own, down, phases in turns]
        edges = {t[2] % case["edges"] for t in turns}, {t[2] % case["edges"] for t in turns if not t[1]}
        return whys, end, spent, sum(map(len, edges)) * world.bytes

    @plain
    def test_time_and_bytes_are_those_of_plain_loops(self):
        draw, met = random.Random(3), set()
        for number in range(8):
            case = {"seed": draw.randint(1, 10**6), "network": draw.choice(["none", "moderate", "dynamic"]),
                    "edge_network": draw.choice(["satellite", "moderate", "dynamic", "none"]),
                    "gflops": draw.choice([.0001, .01]), "sigma": 0.5, "dropout": draw.choice([0, .2]), "deadline": 0,
                    "over": draw.choice([0, .5]), "epochs": 1, "wanted": draw.randint(3, 6), "availability": "always",
                    "share": .5, "day": 1000, "too_few": "go_on", "aggregator": draw.choice(["fedavg", "fednova"]),
                    "compression": draw.choice(["none", "sign"]), "edges": draw.randint(1, 5),
                    "tight": draw.choice([0, 1.1])}
            with self.subTest(number, **case):
                met |= self.compare(f"run {number}", case)
        self.assertLessEqual({"", "dropout", "late", "surplus"}, met)

    def compare(self, run, case):
        words = [*PLAYED, "partition=dirichlet", f"federate.edges={case['edges']}",
                 f"edge_network={case['edge_network']}"]
        costs = costs_of(self.federate(f"{run} of all", *words, *words_of(case), "rounds=1").out)
        samples = [0] * 12
        for line in self.read(f"{run} of all", "partition.csv").splitlines()[1:]:
            samples[int(line.split(",")[0])] += 1
        world = World(case, costs, samples)
        usual = sorted(sum(world.phases(k, 0)[0]) + sum(self.trip(case, world, k, 0)) for k in range(12))
        case["deadline"] = case["tight"] * usual[7]
        result = self.federate(run, *words, *words_of(case), "rounds=6")
        met = set()
        for line, record in zip(self.records(run, "participants.jsonl"), self.training(run), strict=True):
            if f"round {line['round']}: " in result.err:
                continue  # the round is made again with other clients
            whys, end, spent, edge_bytes = self.play(case, world, line["client"], line["round"] - 1)
            self.assertEqual(line["left_out"], whys)
            for got, wanted in zip([*line["seconds"], record["simulated_seconds"], record["joules"]],
                                   [*(s[0] for s in spent), end, sum(s[1] for s in spent)], strict=True):
                self.assertTrue(math.isclose(got, wanted, rel_tol=1e-7, abs_tol=1e-12), (got, wanted))
            self.assertEqual([record["edge_bytes"], record["bytes"]],
                             [edge_bytes, edge_bytes + sum(s[2] for s in spent)])
            met |= set(whys)
        return met

    WORDS = [*MLP, "network=moderate", "partition=dirichlet", "training.batch_size=8", "federate.edges=3",
             "edge_network=dynamic", "method=power_of_choice", "method.d=7"]

    @plain
    def test_the_model_has_the_bits_of_a_federation_without_edges(self):
        plain = [word for word in self.WORDS if "edge" not in word]
        for kind in [], ["federate.local=scaffold", "optimizer=sgd", "optimizer.momentum=0"], ["aggregator=qfedavg"]:
            with self.subTest(kind):
                self.federate(f"plain {kind}", *plain, *kind)
                self.federate(f"edges {kind}", *self.WORDS, *kind)
                self.assert_same_checkpoint(f"plain {kind}", f"edges {kind}", 4, ["model.safetensors"])
                for a, b in zip(self.training(f"plain {kind}"), self.training(f"edges {kind}"), strict=True):
                    self.assertEqual(a["bytes"], b["bytes"] - b["edge_bytes"])
                    self.assertGreater(b["simulated_seconds"], a["simulated_seconds"])

    @plain
    def test_an_edge_averages_its_clients_several_times(self):
        """Compares with plain loops in double precision."""
        draw = random.Random(29)
        for number in range(8):
            name, edges, rounds = f"edges {number}", draw.randint(1, 3), draw.randint(2, 4)
            aggregator, mu, clients = draw.choice(["fedavg", "uniform"]), draw.choice([0, 0.4]), draw.randint(4, 7)
            words = [f"federate.edges={edges}", f"federate.edge_rounds={rounds}", f"aggregator={aggregator}"]
            words += ["federate.local=fedprox", f"federate.mu={mu}"] if mu else []
            case, parts, model = self.draw(draw, name, *words, mu=mu, clients=clients, selected=clients - 1)
            moved = zeros(model)
            for step in range(ROUNDS):
                total, chosen = zeros(model), case.chosen(step)
                weight = {c: len(parts[c]) if aggregator == "fedavg" else 1 for c in chosen}
                for edge in {c % edges for c in chosen}:
                    of_edge, members = model, [c for c in chosen if c % edges == edge]
                    all_members = sum(weight[c] for c in members)
                    for _ in range(rounds):
                        change = zeros(model)
                        for c in members:
                            change += (case.train(of_edge, rows=parts[c]) - of_edge) * (weight[c] / all_members)
                        of_edge += change
                    total += (of_edge - model) * (all_members / sum(weight.values()))
                moved = moved * case.momentum + total
                model += moved * case.server_rate
                self.assert_close(self.model(name, step + 1), model, (name, step))

    @plain
    def test_rounds_of_an_edge_take_time_and_bytes(self):
        """Each round of an edge lasts as long as its slowest client. The server's model crosses to the edge once."""
        base = [*MLP, "network=moderate", "partition=dirichlet", "federate.edges=3", "edge_network=satellite",
                "edge_network.jitter_ms=[0]", "network.jitter_ms=[0]", "method=round_robin", "federate.train=false"]
        for run, rounds in ("one", 1), ("five", 5):
            self.federate(run, *base, f"federate.edge_rounds={rounds}")
        for one, five, lines in zip(self.training("one"), self.training("five"),
                                    zip(self.records("one", "participants.jsonl"),
                                        self.records("five", "participants.jsonl"), strict=True), strict=True):
            trips = one["simulated_seconds"] - max(lines[0]["seconds"])
            for a, b in zip(lines[0]["seconds"], lines[1]["seconds"], strict=True):
                self.assertAlmostEqual(b, 5 * a, places=6)
            self.assertAlmostEqual(five["simulated_seconds"], trips + 5 * max(lines[0]["seconds"]), places=6)
            self.assertEqual(one["edge_bytes"], five["edge_bytes"])
            self.assertEqual(five["bytes"] - five["edge_bytes"], 5 * (one["bytes"] - one["edge_bytes"]))

    @plain
    def test_a_client_that_fails_in_any_round_of_its_edge_changes_no_bit(self):
        words = [*KINDS["edge rounds"], "memory.recompute=none"]
        self.federate("whole", *words)
        for number, fault in enumerate(["client:1", "client:4", "client:8", "client:11", "begin:1+"]):
            for lanes in (2,) if "+" in fault else (1, 2):  # with one lane the run would give up
                run = f"faulty {number} {lanes}"
                faults = attempts(3, 4) if "+" in fault else f"step:3:{fault}"
                self.federate(run, *words, f"parallel_clients={lanes}", env={"BRIM_FAULT": faults})
                self.assert_same_checkpoint("whole", run, 4, ["model.safetensors", "optimizer.safetensors"])

    def test_an_edge_whose_clients_diverge_is_left_out(self):
        words = [*MLP, "federate.edges=2", "federate.edge_rounds=3", "clients_per_round=12", "rounds=1",
                 "optimizer.lr=1e3", "federate.local=fedprox"]
        result = self.federate("run", *words, status=FAILED)
        self.assert_error(result, "all 12 clients of round 1 have diverged")

    def test_records_do_not_depend_on_ranks_and_resumes(self):
        keys = "simulated_seconds", "simulated_clock", "joules", "bytes", "edge_bytes", "loss", "accuracy"
        for rounds in 1, 3:
            words, whole, cut, ranks = [*self.WORDS, f"federate.edge_rounds={rounds}"], *(
                f"{name} {rounds}" for name in ("whole", "cut", "ranks"))
            self.federate(whole, *words)
            self.federate(cut, *words, status=NO_FIT, env={"BRIM_FAULT": attempts(4, 12)})
            self.brim("federate", "--resume", cut)
            process = self.start_ranks(2, "federate", f"run.dir={ranks}", *words)
            self.assertEqual(process.wait(), 0, process.communicate())
            for other in cut, ranks:
                self.assert_same_checkpoint(whole, other, 4,
                                            ["model.safetensors", "optimizer.safetensors", "state.json"])
                for a, b in zip(self.training(whole), self.training(other), strict=True):
                    self.assertEqual([a[key] for key in keys], [b[key] for key in keys])

    @plain
    def test_networks_of_edges_are_those_of_clients(self):
        """Edges have the same options for networks as clients, with the same values."""
        result = self.federate("run", *MLP, "federate.edges=2", "edge_network=fast", status=USAGE)
        for name in NETWORKS:
            self.assertIn(name, result.err)

    def test_bad_input_is_refused(self):
        for words, message in (
                (["federate.edges=13"], "federate.edges 13 is more than the 12 clients of total_clients"),
                (["edge_network=good"], "'edge_network' has no effect without edges"),
                (["federate.edges=2", "edge_network.latency_ms=[1,2]"],
                 "'edge_network.jitter_ms' has 0 values, and edge_network.latency_ms has 2"),
                (["federate.edges=2", "aggregator=median"], "the server gets sums from the edges, and not each update"),
                (["federate.edge_rounds=2"], "'federate.edge_rounds' has no effect without edges"),
                (["federate.edges=2", "federate.edge_rounds=2", "federate.personal=ditto"],
                 "clients have no state between an edge's rounds"),
                (["federate.edges=2", "federate.edge_rounds=2", "aggregator=fednova"],
                 "an edge's model is the mean of its clients' models"),
                (["federate.edges=2", "federate.edge_rounds=2", "federate.over_selection=0.5"],
                 "all clients of an edge arrive together"),
                (["federate.edges=2", "federate.async=true"],
                 "an edge adds up the updates of clients that start together")):
            with self.subTest(message):
                self.assert_error(self.federate("run", *MLP, *words, status=USAGE), message)


if __name__ == "__main__":
    main()
