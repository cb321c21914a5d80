"""Tests brim compare: figures of runs side by side, the differences in their configurations, and curves."""

import json
import re
import xml.etree.ElementTree as xml

from support import LOAD, SMALL, USAGE, Case, main, plain

SVG = "{http://www.w3.org/2000/svg}"
RUN = [*SMALL, "training.epochs=2", "observe.log_every_steps=1"]


class TwoRuns(Case):
    def setUp(self):
        super().setUp()
        self.once(self.train_two, "runs")

    def train_two(self):
        self.train("runs/a", *RUN, "optimizer.lr=1e-2")
        self.train("runs/b", *RUN, "model.hidden=[8]", "dataset.validation_fraction=0.25")


class Compare(TwoRuns):
    def rows(self, *argv):
        """Returns the two tables, as lists of cells."""
        out = self.brim("compare", *argv).out
        return [[re.split(r"  +", line.strip()) for line in table.splitlines()] for table in out.strip().split("\n\n")]

    def json_of(self, *argv):
        return self.brim("compare", "--json", *argv).json["runs"]

    def test_figures_are_those_of_the_summaries(self):
        figures, _ = self.rows("runs/a", "runs/b")
        self.assertEqual([row[:5] for row in figures[1:]],
                         [["a", "finished", "mlp", "synthetic", "4"], ["b", "finished", "mlp", "synthetic", "4"]])
        summary = self.summary("runs/b")
        for key, decimals, scale in (("train_loss", 4, 1), ("validation_loss", 4, 1), ("test_loss", 4, 1),
                                     ("test_accuracy", 2, 100), ("samples_per_second", 0, 1)):
            self.assertIn(f"{summary[key] * scale:.{decimals}f}", figures[2], key)

    @plain
    def test_a_figure_that_a_run_lacks_is_a_dash(self):
        figures, _ = self.rows("runs/a", "runs/b")
        column = figures[0].index("val. loss")
        self.assertEqual(figures[1][column], "-")
        self.assertNotIn("val. loss", self.rows("runs/a")[0][0], "a column that is empty for all is left out")

    def test_keys_that_differ(self):
        _, keys = self.rows("runs/a", "runs/b")
        self.assertEqual(keys, [["key", "a", "b"], ["model.hidden", "[16]", "[8]"],
                                ["dataset.validation_fraction", "0", "0.25"], ["optimizer.lr", "1e-2", "2e-3"]])

    @plain
    def test_equal_configurations_have_no_second_table(self):
        self.train("runs/c", *RUN, "optimizer.lr=1e-2")
        self.assertEqual(len(self.rows("runs/a", "runs/c")), 1)

    @plain
    def test_json_has_the_exact_figures(self):
        a, b = self.json_of("runs/a", "runs/b")
        for run, name in ((a, "a"), (b, "b")):
            summary = self.summary(f"runs/{name}")
            self.assertEqual(run["run"], f"runs/{name}")
            for key in ("status", "steps", "train_loss", "validation_loss", "test_loss", "test_accuracy",
                        "device_peak_bytes", "wall_seconds"):
                self.assertEqual(run[key], summary[key], key)
        self.assertEqual(a["differing"], {"model.hidden": "[16]", "dataset.validation_fraction": "0",
                                          "optimizer.lr": "1e-2"})

    @plain
    def test_a_run_without_a_summary_shows_its_last_records(self):
        (self.folder / "runs/a/summary.json").unlink()
        with open(self.folder / "runs/a/metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step": 5, "split": "train", "lo')  # a kill leaves such a line
        run, = self.json_of("runs/a")
        last = [record for record in self.records_before_the_end("runs/a") if record["split"] == "train"][-1]
        self.assertEqual((run["status"], run["steps"], run["train_loss"]), ("unfinished", 4, last["loss"]))

    def records_before_the_end(self, run):
        return [json.loads(line) for line in self.read(run, "metrics.jsonl").splitlines()[:-1]]

    @plain
    def test_a_sweep_folder_selects_its_runs(self):
        self.brim("train", "-m", "run.dir=sweep", *RUN, "seed=1,2", "memory.limit_mb=200")
        runs = self.json_of("sweep/", "runs/a")
        self.assertEqual([run["name"] for run in runs], ["sweep/0", "sweep/1", "a"])
        self.assertEqual([run["differing"]["seed"] for run in runs], ["1", "2", "1"])

    def test_a_run_in_the_folder_of_a_sweep_that_failed(self):
        (self.folder / "runs/a/sweep.json").write_text('{"jobs": []}')
        self.assertEqual([run["run"] for run in self.json_of("runs/a")], ["runs/a"])
        self.brim("report", "runs/a")

    @plain
    def test_names_are_long_enough_to_be_distinct(self):
        self.train("other/a", *RUN)
        self.assertEqual([run["name"] for run in self.json_of("runs/a", "other/a")], ["runs/a", "other/a"])

    def test_errors(self):
        self.assert_error(self.brim("compare", status=USAGE), "write brim compare RUN...")
        (self.folder / "other").mkdir()
        self.assert_error(self.brim("compare", "other", status=LOAD),
                          "'other' is not the folder of a run or of a sweep", "there are no readable runs in it")
        (self.folder / "runs/a/config.yaml").write_text("a: [")
        self.assert_error(self.brim("compare", "runs/a", status=USAGE), "runs/a/config.yaml:2:1")


class Curves(TwoRuns):
    @plain
    def test_curves_are_well_formed_and_one_colour_a_run(self):
        self.brim("compare", "runs/a", "runs/b", "-o", "curves.svg")
        root = xml.parse(self.folder / "curves.svg").getroot()
        texts = [text.text for text in root.iter(f"{SVG}text")]
        for text in ("Loss", "Accuracy", "step"):
            self.assertIn(text, texts)
        self.assertEqual(sum(text.startswith(("a", "b")) for text in texts if text), 2, texts)
        lines = [kinds for path in root.iter(f"{SVG}path")
                 if (kinds := path.get("class").split())[0] in ("curve", "faint")]
        # two charts with two runs each, training and validation or test, and the legend
        self.assertEqual(len(lines), 2 * 2 * 2 + 2)
        self.assertEqual({color for _, color in lines}, {"color0", "color1"})

    @plain
    def test_points_lie_inside_and_keep_their_order(self):
        self.brim("compare", "runs/a", "-o", "curves.svg")
        root = xml.parse(self.folder / "curves.svg").getroot()
        width, height = float(root.get("width")), float(root.get("height"))
        faint = next(path for path in root.iter(f"{SVG}path") if path.get("class").startswith("faint"))
        points = [tuple(map(float, pair.split())) for pair in re.split("[ML]", faint.get("d"))[1:]]
        self.assertEqual(len(points), 4, "one for each training record")
        self.assertEqual(points, sorted(points), "steps go to the right")
        self.assertTrue(all(0 < x < width and 0 < y < height for x, y in points))
        losses = [record["loss"] for record in self.records("runs/a") if record["split"] == "train"]
        order = sorted(range(4), key=lambda i: losses[i])
        self.assertEqual(order, sorted(range(4), key=lambda i: -points[i][1]), "higher is more")

    def test_a_name_with_signs_of_xml(self):
        (self.folder / "runs/a").rename(self.folder / "runs/<a&\">")
        self.brim("compare", "runs/<a&\">", "-o", "curves.svg")
        texts = [text.text for text in xml.parse(self.folder / "curves.svg").getroot().iter(f"{SVG}text")]
        self.assertIn("<a&\">", texts)

    def test_a_long_curve_is_thinned_and_keeps_its_spike(self):
        path = self.folder / "runs/a/metrics.jsonl"
        path.write_text("".join(json.dumps({"step": i, "split": "train", "loss": 50 if i == 77777 else 1}) + "\n"
                                for i in range(100000)))
        self.brim("compare", "runs/a", "-o", "curves.svg")
        self.assertLess((self.folder / "curves.svg").stat().st_size, 50000)
        root = xml.parse(self.folder / "curves.svg").getroot()
        faint = next(path for path in root.iter(f"{SVG}path") if path.get("class").startswith("faint"))
        heights = [float(pair.split()[1]) for pair in re.split("[ML]", faint.get("d"))[1:]]
        self.assertLess(min(heights), sorted(heights)[1] - 100)

    @plain
    def test_a_file_that_cannot_be_written(self):
        self.assert_error(self.brim("compare", "runs/a", "-o", "no/such/curves.svg", status=None), "no/such")
        self.assert_error(self.brim("compare", "runs/a", "-o", "data.png", status=2), "-o data.png", "must end in .svg")
        self.assert_error(self.brim("compare", "runs/a", "-o", "data.csv", status=2), "-o data.csv",
                          "none of the runs is a finished federation")


if __name__ == "__main__":
    main()
