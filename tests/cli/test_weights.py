"""Tests weights in and out: model.weights, name maps, and brim export."""

import shutil
import struct
import subprocess

import tensors
from support import DONE, LOAD, SMALL, USAGE, Case, main, plain

DATA = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=128", "dataset.test_count=64",
        "training.batch_size=64", "backend.threads=1", "memory.timing=false"]
VIT = ["model=vit", "model.depth=3", "model.width=24", "model.heads=3", *DATA]
STILL = ["optimizer=sgd", "optimizer.lr=0", "training.steps=1"]  # a step that changes nothing


class Weights(Case):
    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("first", *VIT, "training.epochs=2"), "first")

    def parameters(self, run):
        return tensors.read(self.folder / run / "checkpoints/last/model.safetensors")[0]

    def assert_begins_with_first(self, *words):
        """Asserts that a run with these options has the weights of the first run, to the bit, and the same test
        results."""
        shutil.rmtree(self.folder / "again", ignore_errors=True)
        result = self.train("again", *VIT, *STILL, *words)
        self.assertEqual(self.parameters("first"), self.parameters("again"))
        self.assertEqual(self.summary("first")["test_loss"], self.summary("again")["test_loss"])
        return result

    def export(self, *words, status=DONE):
        return self.brim("export", "first", *words, status=status)


class In(Weights):
    @plain
    def test_a_run_or_a_checkpoint_or_its_file(self):
        for path in ("first", "first/checkpoints/last", "first/checkpoints/last/model.safetensors"):
            with self.subTest(path):
                result = self.assert_begins_with_first(f"model.weights={path}")
                self.assertIn("weights: 44 tensors", result.err)
                self.assertNotIn("using map", result.err)

    def test_a_file_of_timm_is_recognised(self):
        found, _ = tensors.read(self.folder / "first/checkpoints/last/model.safetensors")
        tensors.write(self.folder / "vit/model.safetensors", found, {"format": "pt"})
        for path in ("vit", "vit/model.safetensors"):
            result = self.assert_begins_with_first(f"model.weights={path}")
            self.assertIn("using map timm_vit, recognised by tensor names", result.err)
        record = self.json("again", "weights.json")
        self.assertEqual(record["map"], "timm_vit")
        self.assertEqual(record["tensors"], 44)
        self.assertEqual(record["path"], str((self.folder / "vit/model.safetensors").resolve()))
        self.assertRegex(record["files"][0]["hash"], "^xxh64:[0-9a-f]{16}$")

    def test_shards_with_an_index(self):
        found, _ = tensors.read(self.folder / "first/checkpoints/last/model.safetensors")
        tensors.write_shards(self.folder / "shards", found)
        for path in ("shards", "shards/model.safetensors.index.json"):
            self.assert_begins_with_first(f"model.weights={path}")
        (self.folder / "shards/model-00002-of-00002.safetensors").unlink()
        result = self.train("lacking", *VIT, "model.weights=shards", status=LOAD)
        self.assert_error(result, "model-00002-of-00002.safetensors' is missing: file 2 of 2")

    @plain
    def test_averages_of_the_weights_begin_with_them_too(self):
        self.assert_begins_with_first("model.weights=first", "training.ema_decay=0.5")

    def test_other_types_are_converted(self):
        found, _ = tensors.read(self.folder / "first/checkpoints/last/model.safetensors")
        wide = {name: ("F64", shape, values) for name, (_, shape, values) in found.items()}
        tensors.write(self.folder / "wide.safetensors", wide)
        self.assert_begins_with_first("model.weights=wide.safetensors")

    def test_all_mismatches_are_reported_together_and_no_folder_is_left(self):
        result = self.train("bad", *VIT, "model.weights=first", "model.depth=5", "dataset.classes=7", status=LOAD)
        self.assert_error(result, "24 missing: in the model",
                          "blocks.{3,4}.attn.qkv.weight: [72, 24] (2 tensors)",
                          "2 with another shape or type", "head.weight: [10, 24]; the model needs [7, 24]")
        self.assertFalse((self.folder / "bad").exists())

    @plain
    def test_a_new_head_for_other_classes(self):
        words = [*VIT, "model.weights=first", "dataset.classes=7"]
        result = self.train("bad", *words, status=LOAD)
        self.assert_error(result, "to start with a new 'head', set model.weights_except='head.*'")
        result = self.train("new", *words, *STILL, "model.weights_except=head.*")
        self.assertIn("head.weight and head.bias keep their initial values", result.err)
        first, new = self.parameters("first"), self.parameters("new")
        self.assertEqual({name for name in first if first[name] != new[name]}, {"head.weight", "head.bias"})
        self.assertEqual(self.json("new", "weights.json")["kept"], ["head.weight", "head.bias"])

    def test_damaged_files_are_refused(self):
        data = (self.folder / "first/checkpoints/last/model.safetensors").read_bytes()
        for length in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
            (self.folder / "cut.safetensors").write_bytes(data[:length])
            result = self.brim("plan", *VIT, "model.weights=cut.safetensors", status=LOAD)
            self.assert_error(result, "'cut.safetensors' is not a safetensors file that brim can read")
        (self.folder / "not_finite.safetensors").write_bytes(data[:-4] + struct.pack("<f", float("nan")))
        result = self.train("bad", *VIT, "model.weights=not_finite.safetensors", status=LOAD)
        self.assert_error(result, "has a value that is not a finite number")
        self.assertFalse((self.folder / "bad").exists())

    def test_a_damaged_checkpoint_is_refused(self):
        path = self.checkpoint("first", 4) / "model.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        self.brim("plan", *VIT, "model.weights=first", status=LOAD)

    @plain
    def test_plan_compares_names_and_shapes(self):
        self.assertRegex(self.brim("plan", *VIT, "model.weights=first").out,
                         r"weights: 44 tensors, .*, from 'first'; names and shapes match the model")
        plan = self.brim("plan", *VIT, "model.weights=first", "--json").json
        self.assertEqual(plan["weights"]["tensors"], 44)
        self.brim("plan", *VIT, "model.weights=first", "model.width=48", status=LOAD)

    @plain
    def test_wrong_words(self):
        for words, part in ((["model.weights_map=timm"], "no map of weights 'timm'"),
                            (["model.weights_except=haed.*"], "'haed.*' matches no parameter")):
            self.assert_error(self.brim("plan", *VIT, "model.weights=first", *words, status=USAGE), part)
        self.assert_error(self.brim("plan", *VIT, "model.weights=nowhere", status=LOAD), "cannot open 'nowhere'")

    @plain
    def test_name_maps_are_not_a_group(self):
        self.assertNotIn("timm_vit", self.brim("config", "--groups").out)
        self.brim("config", "weights=timm_vit", status=USAGE)


class Map(Weights):
    TEXT = "rules:\n  - {from: 'body.**', to: 'blocks.**'}\n  - {from: 'top.*', to: 'head.*', transpose: true}\n"

    def test_a_users_map(self):
        (self.folder / "own.yaml").write_text(self.TEXT)
        self.export("--format", "own.yaml", "-o", "own.safetensors")
        found, _ = tensors.read(self.folder / "own.safetensors")
        self.assertEqual(found["top.weight"][1], [24, 10])
        self.assertIn("body.0.attn.qkv.weight", found)
        self.assert_begins_with_first("model.weights=own.safetensors", "model.weights_map=own.yaml")

    def test_mistakes_have_positions(self):
        (self.folder / "own.yaml").write_text(self.TEXT + "  - {from: 'a.*', too: 'b.*'}\n")
        result = self.brim("plan", *VIT, "model.weights=first", "model.weights_map=own.yaml", status=USAGE)
        self.assert_error(result, "unknown key 'too' in a map of weights", "own.yaml:4:", "did you mean 'to'?")

    @plain
    def test_paths_are_those_of_the_folder_that_the_run_was_begun_in(self):
        (self.folder / "own.yaml").write_text(self.TEXT)
        self.export("--format", "own.yaml", "-o", "own.safetensors")
        self.train("begun", *VIT, *STILL, "model.weights=own.safetensors", "model.weights_map=own.yaml")
        config = self.read("begun", "config.yaml")
        self.assertIn(f"weights: {self.folder}/own.safetensors", config)
        self.assertIn(f"weights_map: {self.folder}/own.yaml", config)


class Resumed(Weights):
    """A checkpoint has all parameters, so the weights file is needed only until the first one."""

    def setUp(self):
        super().setUp()
        self.export("-o", "begin.safetensors")
        self.train("whole", *VIT, "model.weights=begin.safetensors", "training.steps=4",
                   "training.checkpoint_every_steps=2")

    def stop_after(self, step):
        """Makes the run look as if it had been killed after the checkpoint of this step."""
        shutil.copytree(self.folder / "whole", self.folder / "run", symlinks=True)
        (self.folder / "run/summary.json").unlink()
        for later in [number for number in self.steps("run") if number > step]:
            shutil.rmtree(self.checkpoint("run", later))

    def test_resumes_without_the_weights(self):
        self.stop_after(2)
        (self.folder / "begin.safetensors").unlink()
        self.brim("train", "--resume", "run")
        self.assert_same_checkpoint("whole", "run", 4)

    @plain
    def test_restarts_with_the_weights_without_a_checkpoint(self):
        self.stop_after(0)
        self.brim("train", "--resume", "run")
        self.assert_same_checkpoint("whole", "run", 4)

    def test_other_weights_are_refused(self):
        self.stop_after(0)
        self.train("other", *VIT, "training.epochs=1", "seed=9")
        self.brim("export", "other", "-o", "begin.safetensors", "--force")
        result = self.brim("train", "--resume", "run", status=LOAD)
        self.assert_error(result, "are not those that the run began with", "weights.json' has the hashes of these")

    @plain
    def test_from_a_run_with_weights(self):
        self.brim("train", "--from", "whole", "run.dir=copy")
        self.assert_same_checkpoint("whole", "copy", 4)


class Out(Weights):
    def test_round_trips_are_exact(self):
        for name in ("brim", "timm", "timm_vit"):
            with self.subTest(name):
                self.export("--format", name, "-o", "out.safetensors", "--force")
                found, metadata = tensors.read(self.folder / "out.safetensors")
                self.assertEqual(found, self.parameters("first"))
                self.assertEqual(metadata["format"], "pt")
                self.assert_begins_with_first("model.weights=out.safetensors")

    def test_16_bits_are_rounded_to_the_nearest(self):
        self.export("--dtype", "bf16", "-o", "out.safetensors")
        found, _ = tensors.read(self.folder / "out.safetensors")
        for name, (_, shape, values) in self.parameters("first").items():
            self.assertEqual(found[name][:2], ("BF16", shape))
            for value, bits in zip(values, found[name][2]):
                whole = struct.unpack("<I", struct.pack("<f", value))[0]
                self.assertEqual(bits, (whole + 0x7FFF + (whole >> 16 & 1)) >> 16)
        self.export("--dtype", "fp16", "-o", "half.safetensors")
        result = self.train("half", *VIT, *STILL, "model.weights=half.safetensors")
        self.assertIn("weights: 44 tensors", result.err)
        self.assertAlmostEqual(self.summary("half")["test_loss"], self.summary("first")["test_loss"], places=2)

    @plain
    def test_the_checkpoint_is_the_best_or_the_one_that_is_named(self):
        self.train("two", *VIT, "training.steps=4", "training.checkpoint_every_steps=2")
        for which in ("last", "step-00000002"):
            self.brim("export", "two", "--checkpoint", which, "-o", f"{which}.safetensors")
            found, _ = tensors.read(self.folder / f"{which}.safetensors")
            expected, _ = tensors.read(self.folder / "two/checkpoints" / which / "model.safetensors")
            self.assertEqual(found, expected)

    @plain
    def test_an_existing_file_is_not_replaced_by_default(self):
        self.export()
        before = (self.folder / "model.safetensors").read_bytes()
        self.assert_error(self.export("--dtype", "bf16", status=USAGE),
                          "'model.safetensors' exists already", "--force")
        self.assertEqual((self.folder / "model.safetensors").read_bytes(), before)
        self.export("--dtype", "bf16", "--force")
        self.assertLess(len((self.folder / "model.safetensors").read_bytes()), len(before))
        self.assertEqual([path.name for path in self.folder.glob(".*.tmp")], [])

    @plain
    def test_wrong_words(self):
        for words, part in ((["--format", "hf"], "do not match any network that has the format 'hf'"),
                            (["--format", "tim"], "available: brim hf timm torchvision"),
                            (["--dtype", "fp64"], "--dtype must be f32, bf16, f16 or, with --format gguf, q8_0; got"),
                            (["-o", "a.bin"], "must end in .safetensors"),
                            (["-o", "vit/"], "to write into a folder: -o vit/model.safetensors"),
                            (["--format", "peft", "-o", "a.safetensors"], "--format peft writes a folder"),
                            (["second"], "brim export takes one run")):
            self.assert_error(self.export(*words, status=USAGE), part)
        self.assert_error(self.brim("export", status=USAGE), "brim export needs the folder of a run")
        self.assert_error(self.brim("export", "nowhere", status=LOAD), "nowhere")
        self.assert_error(self.export("-o", "no/such/a.safetensors", status=USAGE), "no/such")

    @plain
    def test_a_model_without_a_layout_is_exported_as_it_is(self):
        self.train("mlp", *SMALL, "training.epochs=1")
        self.brim("export", "mlp")
        result = self.brim("export", "mlp", "--format", "timm", "-o", "x.safetensors", status=USAGE)
        self.assert_error(result, "for this model: brim")

    @plain
    def test_pytorch_loads_it(self):
        program = """
import json, struct, sys
try:
    import torch
except ImportError:
    sys.exit(77)
data = open('out.safetensors', 'rb').read()
size = struct.unpack('<Q', data[:8])[0]
header = json.loads(data[8:8 + size])
assert header.pop('__metadata__')['format'] == 'pt'
state = {}
for name, entry in header.items():
    first, end = entry['data_offsets']
    part = bytearray(data[8 + size + first:8 + size + end])
    state[name] = torch.frombuffer(part, dtype=torch.float32).reshape(entry['shape'])
block = {name[9:]: value for name, value in state.items() if name.startswith('blocks.0.')}
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = torch.nn.Linear(24, 72), torch.nn.Linear(24, 24)
class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(24, 96), torch.nn.Linear(96, 24)
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(24), torch.nn.LayerNorm(24)
        self.attn, self.mlp = Attention(), Mlp()
Block().load_state_dict(block)
print(sum(value.numel() for value in state.values()))
"""
        self.export("--format", "timm", "-o", "out.safetensors")
        for python in ("python3", "/usr/bin/python3"):
            run = subprocess.run([python, "-c", program], cwd=self.folder, capture_output=True, text=True, check=False)
            if run.returncode != 77:
                break
        if run.returncode == 77:
            self.skipTest("PyTorch is not installed")
        self.assertEqual(run.returncode, 0, run.stderr)
        count = sum(len(values) for _, _, values in self.parameters("first").values())
        self.assertEqual(int(run.stdout), count)


if __name__ == "__main__":
    main()
