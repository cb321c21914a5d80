"""The networks that are trained on the device and beforehand on the CPU, and the allowed difference of their losses.

Together they use every family of operations in the models, at sizes where the libraries' own kernels are chosen:
GPT-2's attention over 1024 tokens and its 50257 classes, and ResNet-50 with all its convolutions. The reduced sizes are
for a dry run on the emulated device, and for comparing the CPU with the reference backend."""

import machine

COMMON = ["dataset=synthetic", "dataset.test_count=0", "dataset.train_count=512", "optimizer=adamw",
          "schedule=constant", "observe.log_every_steps=1", "observe.report=false", "augment.flip=false",
          "augment.crop_padding=0", "memory.timing=false", "training.eval_every_steps=1000000",
          "training.checkpoint_every_steps=1000000", "wait_for_gpu=true"]


def tokens(vocabulary, length):
    return ["dataset.task=tokens", f"dataset.vocabulary={vocabulary}", f"dataset.length={length}"]


def images(shape, classes=10):
    return [f"dataset.shape={shape}", f"dataset.classes={classes}"]


def training(batch, steps, accumulation=1, rate="1e-3"):
    return [f"training.batch_size={batch}", f"training.steps={steps}", f"optimizer.lr={rate}",
            f"training.gradient_accumulation_steps={accumulation}"]


def gpt2(reduced, layers, batch, steps, dropout=0.0):
    """Returns GPT-2 with the given number of layers of its smallest size."""
    size = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=32", *tokens(64, 32)] if reduced else [
        f"model.layers={layers}", *tokens(50257, 1024)]
    return ["model=gpt2", f"model.dropout={dropout}", *size, *training(2 if reduced else batch, steps)]


def networks(reduced):
    """Returns overrides of `brim train` by the network's name."""
    def sized(full, small):
        return small if reduced else full

    return {
        "gpt2": gpt2(reduced, 2, 2, 4),
        "gpt2 with dropout": gpt2(reduced, 2, 2, 4, dropout=0.1),
        "vit": ["model=vit", *sized([*images([3, 32, 32]), *training(16, 8)],
                                    ["model.depth=1", "model.width=16", "model.heads=2", *images([3, 8, 8]),
                                     *training(4, 2)])],
        # At a rate of 3e-6 a curve that does not learn differs by 2e-3; at 2e-4 one whose rate is off by 1e-5 differs
        # by 7e-3 in 6 steps.
        "resnet50": ["model=resnet50", *sized([*images([3, 64, 64]), *training(16, 6, 2, "3e-6")],
                                              ["model.width=2", *images([3, 16, 16]), *training(16, 2, 1, "3e-6")])],
        "cnn": ["model=cnn", *sized([*images([1, 28, 28]), *training(16, 20, 2)],
                                    ["model.width=4", *images([1, 12, 12]), *training(4, 2, 2)])],
        "temperature_lstm": ["model=temperature_lstm", *sized(
            ["model.hidden=50", *images([1, 24, 8], 4), *training(16, 20, rate="3e-3")],
            ["model.hidden=4", *images([1, 4, 2], 4), *training(4, 2)])],
        "mental_state": ["model=mental_state", *sized(
            ["model.dropout=0.1", *images([1, 8, 128], 4), *training(16, 15)],
            ["model.width=4", "model.hidden=4", *images([1, 4, 32], 4), *training(4, 2)])],
    }


# These bounds are relative to the first loss. Backends that only sum in another order stay within 1e-6 at first. In 16
# bits the first loss shows their rounding; later losses amplify it.
FIRST_ERROR_MAX = {"fp32": 1e-5, "bf16": 2e-3, "fp16": 1e-4}
ERROR_MAX = {"fp32": 1e-3, "bf16": 1e-1, "fp16": 1e-1}       # bound for every step
MEAN_ERROR_MAX = {"fp32": 1e-3, "bf16": 2e-2, "fp16": 2e-2}  # bound for the mean over the second half of the steps
# Multiples of the bounds above: 50 layers that divide by a deviation amplify rounding, on the CPU to 1.6e-2 and 2.7e-3.
LOOSE = {("resnet50", "bf16"): 20, ("resnet50", "fp16"): 100}
SCALE = {"fp16": ["loss_scale.init_scale=1024"]}             # small enough for all these networks


def compare(got, expected, precision, name=None):
    """Returns whether a curve of losses is within bounds, and figures."""
    loose = LOOSE.get((name, precision), 1)
    if len(got) != len(expected) or not expected:
        return False, {"steps": len(got), "expected": len(expected)}
    errors = [abs(a - b) / expected[0] for a, b in zip(got, expected)]
    half = len(got) // 2
    mean, mean_expected = (sum(x[half:]) / len(x[half:]) for x in (got, expected))
    good = (errors[0] <= loose * FIRST_ERROR_MAX[precision] and max(errors) <= ERROR_MAX[precision]
            and abs(mean - mean_expected) / expected[0] <= MEAN_ERROR_MAX[precision])
    return good, {"first loss": f"{got[0]:.5f}", "second half": f"{mean:.4f}", "expected": f"{mean_expected:.4f}",
                  "first off by": f"{errors[0]:.1e}", "at most": f"{max(errors):.1e}"}


def golden(on, reduced, kept):
    """Returns the CPU's curves by network, each with its run's overrides. Curves of reduced networks must agree with
    those of the reference backend. Curves in `kept` with the same overrides are not trained again."""
    limit = machine.Limit(7200)
    found = {}

    def train(name, words, backend, size):
        run = on.train(limit, f"{name}-{backend}-{size}".replace(" ", "-"), *words, f"backend={backend}")
        return machine.losses(run)

    for name, small in networks(True).items():
        small, words = [*COMMON, *small], [*COMMON, *networks(reduced)[name]]
        if kept.get(name, {}).get("words") == words:
            found[name] = kept[name]
            continue
        print(f"training {name} on the CPU", flush=True)
        curve = train(name, small, "cpu", "reduced")
        good, figures = compare(curve, train(name, small, "reference", "reduced"), "fp32")
        if not good:
            raise RuntimeError(f"the CPU's losses of the reduced {name} differ from the reference's: {figures}")
        found[name] = {"words": words, "losses": curve if reduced else train(name, words, "cpu", "whole")}
    return found


def federation(reduced, lanes, rounds):
    """Returns a federation of ten clients a round, each with 600 pictures in batches of 10."""
    samples, size = (40, ["model.width=2"]) if reduced else (6000, [])
    return ["backend=cuda", "precision=fp32", "dataset=synthetic", *images([1, 8, 8] if reduced else [1, 28, 28]),
            "dataset.test_count=0", f"dataset.train_count={samples}", "model=lightcnn", *size, "total_clients=10",
            "clients_per_round=10", "training.batch_size=10", f"rounds={rounds}", f"parallel_clients={lanes}",
            "memory.timing=false",
            "observe.report=false", "federate.client_accuracy=false", "federate.checkpoint_every_rounds=1000",
            "wait_for_gpu=true"]
