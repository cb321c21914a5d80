"""The cases that test_tasks.py trains, and from which make_tasks.py computes PyTorch's numbers."""

import os
import pathlib

STEPS = 20
_BUILD = pathlib.Path(os.environ["BRIM_BINARY"]).parents[1]
PLUGINS = os.environ.get("BRIM_TASK_PLUGINS", str(_BUILD / "tests" / "tasks"))

_TOKENS = {"task": "tokens", "vocabulary": 7, "length": 9, "train_count": 24, "test_count": 10, "ignored": 0.3,
           "dim": 5, "lr": 0.5}
_VALUES = {"task": "values", "shape": [6, 3], "targets": 2, "train_count": 24, "test_count": 10, "noise": 0.1,
           "hidden": 4, "lr": 0.2}
_CLASSES = {"task": "class", "shape": [12], "classes": 5, "train_count": 24, "test_count": 10, "noise": 1, "hidden": 8,
            "lr": 0.2}

GOLDEN = {
    "tokens": _TOKENS,
    "tokens_weights": {**_TOKENS, "class_weights": [0.5, 2, 0.25, 1, 3, 1, 0], "label_smoothing": 0.1},
    "tokens_ignored": {**_TOKENS, "ignore_index": 3, "class_weights": [0.5, 2, 0.25, 1, 3, 1, 2]},
    "mse": {**_VALUES, "loss": "mse"},
    "mae": {**_VALUES, "loss": "mae"},
    "huber": {**_VALUES, "loss": "huber", "delta": 0.3},
    "mixup": {**_CLASSES, "mixup": 0.4, "label_smoothing": 0.1},
    "mixup_flat": {**_CLASSES, "mixup": 1},
    "mixup_values": {**_VALUES, "loss": "mse", "mixup": 4},
}


def words_of(name, command):
    """Returns the command line of a case; one step takes all samples."""
    case = GOLDEN[name]
    words = [command, "dataset=synthetic", "optimizer=sgd", "optimizer.momentum=0.9", "optimizer.weight_decay=0",
             "schedule=constant",
             "schedule.warmup_fraction=0", "memory.timing=false", f"optimizer.lr={case['lr']}",
             f"training.effective_batch_size={case['train_count']}", f"training.batch_size={case['train_count']}"]
    words += [f"dataset.{key}={case[key]}" for key in ("task", "vocabulary", "length", "targets", "train_count",
                                                       "test_count", "ignored", "noise", "classes") if key in case]
    words += [f"loss.{key}={case[key]}" for key in ("class_weights", "ignore_index", "label_smoothing",
                                                        "delta") if key in case]
    if "mixup" in case:
        words.append(f"augment.mixup={case['mixup']}")
    if case["task"] == "tokens":
        words += ["model=token_lstm", f"model.dim={case['dim']}", "model.tied=true"]
        return ["--plugin-path", f"{PLUGINS}/model/token_lstm.so", *words]
    shape = ",".join(map(str, case["shape"]))
    words.append(f"dataset.shape=[{shape}]")
    if case["task"] == "class":
        return [*words, "model=mlp", f"model.hidden=[{case['hidden']}]", "model.dropout=0"]
    return [*words, "model=temperature_lstm", f"model.hidden={case['hidden']}", f"loss={case['loss']}"]
