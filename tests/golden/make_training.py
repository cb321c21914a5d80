#!/usr/bin/env python3
"""Makes training.txt: 20 steps of training in PyTorch, in double precision, under each of brim's options.

    python3 tests/golden/make_training.py        # needs torch and torch_optimizer (for Yogi); writes into this folder

The model is a small `mlp` without dropout; every case starts from the same parameters and takes the same batch. The
file is as make_models.py describes it: for each case the loss before each step and the parameters after the last. The
settings are repeated in tests/conformance/test_golden_training.c.
"""
import pathlib

import torch
import torch_optimizer
from torch import nn

from make_models import STEPS, Mlp, write

CLASSES = 5
UNCORRECTED = 10 ** 9  # after this many steps 1 - beta^step is 1


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)


def sgd(model, nesterov=False):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=nesterov)


def begun(optimizer, step, square):
    """Sets the states as after `step` updates, with means of 0 and means of squares `square`."""
    for p in optimizer.param_groups[0]["params"]:
        optimizer.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.full_like(p, square)}
    return optimizer


def adam_uncorrected(model):
    return begun(adam(model), torch.tensor(float(UNCORRECTED)), 0.0)


def yogi(model, step=0, square=1e-6):
    """Makes Yogi. torch_optimizer initialises the mean of gradients with 1e-6 too, but the paper (and TensorFlow
    Addons) with 0."""
    return begun(torch_optimizer.Yogi(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-3, weight_decay=0.1),
                 step, square)


def adagrad(model, **options):
    return torch.optim.Adagrad(model.parameters(), lr=0.05, weight_decay=0.1, **options)


def adamw_but(model, *without):
    """Makes AdamW with weight decay except for parameters whose names end in one of `without`."""
    groups = [{"params": [], "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in model.named_parameters():
        groups[name.endswith(without)]["params"].append(parameter)
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-8)


def train(out, name, model, start, x, label, optimizer, schedule=None, clip=0, ema=0, **loss_options):
    model.load_state_dict(start)
    optimizer = optimizer(model)
    schedule = schedule and schedule(optimizer)
    criterion = nn.CrossEntropyLoss(**loss_options)
    losses, norms = [], []
    swa = torch.optim.swa_utils
    average = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(ema)) if ema else None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = criterion(model(x), label)
        losses.append(loss.detach())
        loss.backward()
        if clip:
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), clip).detach())
        optimizer.step()
        if average:
            average.update_parameters(model)
        if schedule:
            schedule.step()
    write(out, f"{name}.loss", torch.stack(losses))
    if norms:
        write(out, f"{name}.norm", torch.stack(norms))
    for key, value in model.named_parameters():
        write(out, f"{name}.{key}", value)
    for key, value in average.module.named_parameters() if average else ():
        write(out, f"{name}.average.{key}", value)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(21)
    model = Mlp(12, [10, 7], CLASSES)
    x, label = torch.randn(6, 1, 4, 3), torch.tensor([3, 0, 4, 1, 3, 2])
    start = {key: value.clone() for key, value in model.state_dict().items()}
    with open(pathlib.Path(__file__).resolve().parent / "training.txt", "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        for key, value in start.items():
            write(out, f"parameter.{key}", value)

        def case(name, *args, **options):
            train(out, name, model, start, x, label, *args, **options)

        lr = torch.optim.lr_scheduler
        case("adam", adam)
        case("nesterov", lambda m: sgd(m, nesterov=True))
        case("no_decay", lambda m: adamw_but(m, ".bias", "fc2.weight"))
        case("step", sgd, schedule=lambda o: lr.StepLR(o, step_size=7, gamma=0.3))
        case("polynomial", adam, schedule=lambda o: lr.PolynomialLR(o, total_iters=STEPS, power=2.0))
        case("clip", sgd, clip=0.2)
        case("clip_adam", adam, clip=0.2)
        case("smoothing", adamw, label_smoothing=0.1)
        case("ema", adamw, ema=0.8)
        weight = torch.tensor([0.5, 2.0, 0.25, 1.0, 3.0])
        case("weights", sgd, weight=weight)
        case("adam_uncorrected", adam_uncorrected)
        case("yogi", yogi)
        case("yogi_uncorrected", lambda m: yogi(m, step=UNCORRECTED, square=0.01), clip=0.2)
        case("adagrad", adagrad)
        case("adagrad_options", lambda m: adagrad(m, lr_decay=0.1, initial_accumulator_value=0.1, eps=1e-3), clip=0.2)
        case("smoothing_weights_clip", adam, clip=0.2, label_smoothing=0.2, weight=weight)


if __name__ == "__main__":
    main()
