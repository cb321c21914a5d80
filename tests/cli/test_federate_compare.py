"""Tests the comparison of federated methods: each figure equals a plain computation from the files of the runs, at the
end of a sweep, in brim compare, and on the page."""

import collections
import csv
import json
import random
import re
import statistics
import xml.etree.ElementTree as xml

from support import LOAD, USAGE, Case, main, plain

SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=480", "dataset.test_count=64",
         "dataset.classes=4", "dataset.noise=0.5", "model=mlp", "model.hidden=[16]", "optimizer.lr=0.1",
         "total_clients=12", "clients_per_round=4", "rounds=8", "partition=dirichlet", "partition.alpha=0.3",
         "federate.eval_every_rounds=2", "memory.timing=false", "backend.threads=2"]
WORLD = ["network=moderate", "world.dropout=0.2"]
METHODS = ["random", "proportional", "power_of_choice"]
CHARTS = ["mean accuracy of the seeds", "mean accuracy by simulated time"]
PARTS = (("accuracy", .4, max), ("seconds_to_80", .3, min), ("participation_gini", .2, min),
         ("label_coverage", .1, max))  # parts of the score: (figure, weight, which value is best)
TITLES = {"accuracy": "accuracy, %", "loss": "loss", "f1": "F1", "rounds_to_80": "rounds to 80 %", "joules": "joules",
          "bytes": "bytes", "client_accuracy_gini": "accuracy per client: Gini",
          "participation_gini": "participation: Gini", "label_coverage": "label coverage, %"}


def gini(times):
    """Returns the Gini coefficient, computed from all pairs."""
    return sum(abs(a - b) for a in times for b in times) / (2 * len(times) * sum(times))


def area(points):
    return sum((x - v) * (y + w) / 2 for (v, w), (x, y) in zip(points, points[1:])) / (points[-1][0] - points[0][0])


class Comparing(Case):
    def sweep(self, run, *words, status=0):
        return self.brim("federate", "-m", f"run.dir={run}", *SMALL, *words, status=status)

    def csv_of(self, *runs):
        """Returns the figures by method, with None for missing ones."""
        self.brim("compare", *runs, "-o", "methods.csv", "--force")
        rows = csv.DictReader(self.read("methods.csv").splitlines())
        return {row.pop("method"): {key: float(text) if text else None for key, text in row.items()} for row in rows}

    def rounds_of(self, run):
        """Returns the clients whose updates arrived, from the lines of participants.jsonl."""
        return [[c for c, arrived in zip(line["client"], line["arrived"]) if arrived]
                for line in self.records(run, "participants.jsonl")]

    def figures(self, run, clients=12):
        records = self.records(run)
        train, test = ([r for r in records if r["split"] == split] for split in ("train", "test"))
        clock = {r["step"]: r["simulated_clock"] for r in train}
        out = {key: test[-1][key] for key in ("accuracy", "loss", "f1")}
        for percent in 50, 80, 90:
            reached = [r["step"] for r in test if r["accuracy"] >= percent / 100]
            out[f"rounds_to_{percent}"] = reached[0] if reached else None
            out[f"seconds_to_{percent}"] = clock[reached[0]] if reached else None
        out["auc"] = area([(r["step"], r["accuracy"]) for r in test])
        for key in "simulated_seconds", "joules", "bytes", "selection_seconds":
            out[key] = sum(r[key] for r in train)
        rounds = self.rounds_of(run)
        counts = collections.Counter(c for one in rounds for c in one)
        times = [counts[c] for c in range(clients)]
        out["participation_variance"], out["participation_gini"] = statistics.pvariance(times), gini(times)
        classes = collections.defaultdict(set)
        for line in self.read(run, "partition.csv").splitlines()[1:]:
            client, _, number = map(int, line.split(","))
            classes[client].add(number)
        present = set().union(*classes.values())
        for key in "client_accuracy_variance", "client_accuracy_gini":
            out[key] = self.summary(run)[key]
        out["label_coverage"] = statistics.mean(len(set().union(*(classes[c] for c in one))) / len(present)
                                                for one in rounds)
        return out

    def methods(self, *of_runs):
        """Returns the mean and the deviation of each figure over each method's list of runs."""
        out = []
        for runs in of_runs:
            figures, row = [self.figures(run) for run in runs], {"seeds": len(runs)}
            for key in figures[0]:
                values = [f[key] for f in figures]
                row[key] = row[f"{key}_deviation"] = None
                if None not in values:
                    row[key] = statistics.mean(values)
                    row[f"{key}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
            out.append(row)
        for row in out:
            row["score"] = 0
            for key, weight, best_of in PARTS:
                there = [r[key] for r in out if r[key] is not None]
                best, worst = best_of(there, default=0), (min if best_of is max else max)(there, default=0)
                if row[key] is None or row["score"] is None:
                    row["score"] = None
                else:
                    row["score"] += weight * (1 if best == worst else (row[key] - worst) / (best - worst))
        return out

    def assert_figures(self, got, expected):
        self.assertEqual(set(got), set(expected))
        for key, value in expected.items():
            if value is None:
                self.assertIsNone(got[key], key)
            else:
                self.assertAlmostEqual(got[key], value, delta=1e-9 * max(1, abs(value)), msg=key)

    @staticmethod
    def table_of(text):
        """Returns the table of methods, with a row for each figure: {title: a cell for each method}."""
        lines = text[re.search(r"(?m)^method  .*\n *seeds ", text).start():].splitlines()
        return {title: cells for title, *cells in (re.split(r"  +", line.strip()) for line in lines[:22])}

    def assert_table(self, table, expected):
        for key, title in TITLES.items():
            unit, digits = {"accuracy": (100, 2), "label_coverage": (100, 2), "rounds_to_80": (1, 1),
                            "bytes": (1, 0)}.get(key, (1, 4))
            for cell, row in zip(table[title], expected):
                mean, deviation = cell.split(" \u00b1 ")
                tolerance = 0.51 * 10**-digits if key != "joules" else 1e-3 * row[key]
                self.assertAlmostEqual(float(mean), unit * row[key], delta=tolerance, msg=key)
                self.assertAlmostEqual(float(deviation), unit * row[f"{key}_deviation"], delta=tolerance, msg=key)


class OfMethods(Comparing):
    def setUp(self):
        super().setUp()
        self.out = self.once(lambda: self.sweep("all", *WORLD, f"method={','.join(METHODS)}", "repeats=3").out, "all")
        self.runs = [[f"all/{3 * k + i}" for i in range(3)] for k in range(3)]

    @plain
    def test_figures_are_those_of_the_files(self):
        expected = self.methods(*self.runs)
        self.assertTrue(all(row["score"] is not None for row in expected), "all reach 80 % here")
        got = self.csv_of("all")
        self.assertEqual(list(got), METHODS)
        described = self.brim("compare", "all", "--json").json["methods"]
        for name, row, object_of in zip(METHODS, expected, described):
            self.assert_figures(got[name], row)
            self.assertEqual(object_of.pop("method"), name)
            self.assert_figures(object_of, row)

    def test_the_table_is_that_of_the_sweeps_end_and_of_the_page(self):
        expected = self.methods(*self.runs)
        compared = self.brim("compare", "all").out
        table = self.table_of(self.out)
        self.assertEqual(table["method"], METHODS)
        self.assertEqual(table["seeds"], ["3"] * 3)
        self.assert_table(table, expected)
        self.assertEqual(table["score"], [f"{row['score']:.4f}" for row in expected])
        self.assertEqual({k: v for k, v in self.table_of(compared).items() if k in TITLES.values()},
                         {k: v for k, v in table.items() if k in TITLES.values()})
        for text in self.out, compared:
            self.assertIn("Score: 0.4 accuracy + 0.3 simulated seconds to 80 % + 0.2 Gini", text)
        self.brim("report", "all", "-o", "all.html")
        page = xml.fromstring(self.read("all.html"))
        section = next(s for s in page.iter("section") if "".join(s.find("h2").itertext()) == "Methods")
        self.assertIn("Score: 0.4 accuracy", "".join(section.itertext()))
        rows = [["".join(cell.itertext()) for cell in row] for row in section.iter("tr")]
        self.assert_table({title: cells for title, *cells in rows}, expected)
        charts = {chart.get("aria-label") for chart in page.iter("svg") if chart.get("class") == "chart"}
        self.assertLess({"accuracy", "accuracy by simulated time"}, charts)
        self.assert_curves(section)

    def assert_curves(self, section):
        """Asserts that curves of means have a point for each evaluation, are higher where the accuracy is higher, and
        lie in bands as high as the deviation over seeds."""
        charts = {chart.get("aria-label"): chart for chart in section.iter("svg") if chart.get("class") == "chart"}
        self.assertEqual(list(charts), CHARTS)
        for label, across in zip(CHARTS, self.places()):
            self.assert_curve(charts[label].find(".//path[@class='curve color0']"),
                              charts[label].find(".//path[@class='band color0']"), across)

    def places(self):
        """Returns the x coordinates of the first method's evaluations, by round and by simulated time."""
        train = [[r["simulated_clock"] for r in self.records(run) if r["split"] == "train"] for run in self.runs[0]]
        return [2, 4, 6, 8], [statistics.mean(clock[2 * k + 1] for clock in train) for k in range(4)]

    def assert_curve(self, line, band, across):
        """Asserts the first method's curve."""
        accuracies = list(zip(*([r["accuracy"] for r in self.records(run) if r["split"] == "test"]
                                for run in self.runs[0])))
        means, deviations = ([of(seeds) for seeds in accuracies] for of in (statistics.mean, statistics.stdev))
        points, around = ([tuple(map(float, pair.split())) for pair in re.split("[ML]", path.get("d").strip("z"))[1:]]
                          for path in (line, band))
        self.assertEqual((len(points), len(around)), (4, 8))
        (x, y), (u, v) = points[0], points[-1]
        height = (v - y) / (means[-1] - means[0])
        for k, (mean, deviation, at) in enumerate(zip(means, deviations, across)):
            place = x + (u - x) * (at - across[0]) / (across[-1] - across[0])
            for point, value in ((points[k], mean), (around[k], mean + deviation), (around[7 - k], mean - deviation)):
                self.assertAlmostEqual(point[1], y + height * (value - means[0]), delta=0.3)
                self.assertAlmostEqual(point[0], place, delta=0.2)

    def picture_of(self, *runs):
        """Returns the elements of an SVG picture by kind, in order, and its texts."""
        self.brim("compare", *runs, "-o", "picture.svg", "--force")
        out, picture = collections.defaultdict(list), xml.fromstring(self.read("picture.svg"))
        for path in picture.iter("{http://www.w3.org/2000/svg}path"):
            out[path.get("class")].append(path)
        return out, [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]

    def test_a_picture_has_the_curves_of_methods(self):
        paths, texts = self.picture_of("all")
        self.assertLessEqual({*CHARTS, *METHODS, "bands: one standard deviation over the seeds"}, set(texts))
        for k in range(3):  # a curve in each chart, and one in the legend
            self.assertEqual((len(paths[f"curve color{k}"]), len(paths[f"band color{k}"])), (3, 2))
        for line, band, across in zip(paths["curve color0"], paths["band color0"], self.places()):
            self.assert_curve(line, band, across)
        paths, _ = self.picture_of("all/0", "all/3")  # one seed of each method, so there is no deviation
        self.assertEqual([len(paths[key]) for key in ("curve color0", "curve color1", "band color0")], [3, 3, 0])
        self.brim("train", "run.dir=central", "training.epochs=1", *SMALL[:7])
        for runs in (["all/0"], ["all/0", "central"]):  # a run alone, and a run beside a central one
            _, texts = self.picture_of(*runs)
            self.assertLessEqual({"Loss", "Accuracy"}, set(texts))

    def test_a_seed_that_misses_the_target(self):
        """If one seed misses the target, the mean of the rounds is missing, and the method has no score."""
        path = self.folder / "all/4/metrics.jsonl"
        records = self.records("all/4")
        for record in records:
            record["accuracy"] *= 0.7
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        expected = self.methods(*self.runs)
        self.assertEqual([row["score"] is None for row in expected], [False, True, False])
        got = self.csv_of("all")
        for name, row in zip(METHODS, expected):
            self.assert_figures(got[name], row)
        table = self.table_of(self.brim("compare", "all").out)
        self.assertEqual(table["rounds to 80 %"][1], "2 of 3")
        self.assertEqual(table["score"][1], "-")

    @plain
    def test_clients_that_never_trained_count(self):
        """Only client 3 has trained, and it is absent in the second round."""
        lines = [{"round": n, "client": [3, 5], "arrived": [n != 2, False]} for n in (1, 2, 3)]
        (self.folder / "all/0/participants.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        row, = self.csv_of("all/0").values()
        expected, = self.methods(["all/0"])
        self.assert_figures(row, {**expected, "score": None})  # a single method has no score
        self.assertAlmostEqual(row["participation_gini"], 11 / 12, delta=1e-12)
        self.assertAlmostEqual(row["participation_variance"], 4 / 12 - (2 / 12)**2, delta=1e-12)

    def test_runs_are_listed(self):
        lines = [re.split(r"  +", line.strip()) for line in
                 self.brim("federate", "--list-runs", "all").out.splitlines()]
        self.assertEqual(lines[0], ["run", "method", "seed", "rounds", "accuracy, %", "status"])
        runs = [(f"all/{i}", METHODS[i // 3], str(1 + i % 3)) for i in range(9)]
        self.assertEqual(lines[1:], [[run, method, seed, "8 of 8", f"{100 * self.summary(run)['test_accuracy']:.2f}",
                                      "finished"] for run, method, seed in runs])
        self.assertEqual(self.brim("federate", "--list-runs", ".").out.count("finished"), 9)
        self.assertEqual(self.brim("federate", "--list-runs", "all/0/checkpoints").out,
                         "no federation in all/0/checkpoints\n")
        self.assert_error(self.brim("federate", "--list-runs", "nowhere", status=LOAD), "'nowhere' cannot be listed")
        self.assert_error(self.brim("federate", "--list-runs", "a", "b", status=USAGE), "--list-runs takes one folder")


class Others(Comparing):
    @plain
    def test_other_differences_are_in_the_name(self):
        """If networks differ in several keys, the name has only the first of them."""
        self.sweep("all", "network=moderate,poor", "method=random,power_of_choice", "repeats=2", "rounds=4")
        expected = self.methods(*([f"all/{2 * k}", f"all/{2 * k + 1}"] for k in range(4)))
        got = self.csv_of("all")
        self.assertEqual(list(got), [f"{method} network.latency_ms=[{ms}]" for ms in (30, 120)
                                     for method in ("random", "power_of_choice")])
        for row, wanted in zip(got.values(), expected):
            self.assert_figures(row, wanted)

    @plain
    def test_without_training_the_figures_of_the_world_remain(self):
        table = self.table_of(self.sweep("all", *WORLD, "method=random,proportional", "repeats=2",
                                         "federate.train=false").out)
        self.assertIn("joules", table)
        self.assertFalse({"accuracy, %", "loss", "F1", "score", "rounds to 50 %", "accuracy per client: Gini"}
                         & set(table))
        for row in self.csv_of("all").values():
            self.assertIsNone(row["accuracy"])
            self.assertGreater(row["joules"], 0)

    @plain
    def test_without_a_world_there_are_no_simulated_times(self):
        table = self.table_of(self.sweep("all", "method=random,proportional", "repeats=2").out)
        self.assertIn("participation: Gini", table)
        self.assertFalse({"joules", "bytes", "score", "simulated seconds to 50 %"} & set(table))

    @plain
    def test_the_accuracy_of_each_client_follows_from_predictions_of_its_rows(self):
        """Rows are in the file's order, the last of them test data; the last batch has 0 to 4 rows."""
        draw = random.Random(3)
        for rows in 120, 121, 124:
            with self.subTest(rows):
                owner = [draw.choice("aabcdd") for _ in range(rows)]
                kind = [draw.randrange(3) for _ in range(rows)]
                text = ["x,y,who,class", *(f"{k + draw.gauss(0, .7):.4f},{draw.gauss(0, 1):.4f},{who},c{k}"
                                           for who, k in zip(owner, kind))]
                (self.folder / "table.csv").write_text("\n".join(text) + "\n")
                run = f"run {rows}"
                words = ["dataset=csv", "dataset.path=table.csv", "dataset.label=class", "dataset.client=who",
                         "dataset.test_fraction=0.2", "model=mlp", "model.hidden=[4]", "partition=natural",
                         "total_clients=4", "clients_per_round=2", "rounds=3", "memory.timing=false"]
                out = self.brim("federate", *words, f"run.dir={run}").out
                answers = [line.split(",")[-1] for line in self.brim("predict", run, "table.csv").out.splitlines()[1:]]
                right = collections.defaultdict(list)
                for line in self.read(run, "partition.csv").splitlines()[1:]:
                    client, sample = map(int, line.split(",")[:2])
                    right[client].append(answers[sample] == f"c{kind[sample]}")
                accuracy = [statistics.mean(map(int, right[k])) for k in range(4)]
                summary = self.summary(run)
                self.assertGreater(statistics.pvariance(accuracy), 0)
                for key, value in (("mean", statistics.mean(accuracy)), ("variance", statistics.pvariance(accuracy)),
                                   ("gini", gini(accuracy))):
                    self.assertAlmostEqual(summary[f"client_accuracy_{key}"], value, delta=1e-12, msg=key)
                self.assertIn(f"accuracy on each client's samples: mean {100 * statistics.mean(accuracy):.2f} %", out)

    @plain
    def test_the_accuracy_of_each_client_can_be_left_out_and_changes_nothing(self):
        self.brim("federate", "run.dir=a", *SMALL)
        self.brim("federate", "run.dir=b", *SMALL, "federate.client_accuracy=false")
        self.assert_same_checkpoint("a", "b", 8, ["model.safetensors", "optimizer.safetensors", "state.json"])
        self.assertIn("client_accuracy_gini", self.summary("a"))
        self.assertNotIn("client_accuracy_gini", self.summary("b"))
        self.assertIsNone(self.csv_of("b")["random"]["client_accuracy_gini"])

    @plain
    def test_only_federations_that_finished_count(self):
        self.brim("federate", "run.dir=a", *SMALL)
        self.brim("federate", "run.dir=b", *SMALL, "seed=2")
        summary = self.json("b", "summary.json")
        (self.folder / "b/summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
        self.assertEqual([row["seeds"] for row in self.csv_of("a", "b").values()], [1])
        self.assert_error(self.brim("compare", "b", "-o", "none.csv", status=USAGE),
                          "none of the runs is a finished federation")
        self.assertFalse((self.folder / "none.csv").exists())


if __name__ == "__main__":
    main()
