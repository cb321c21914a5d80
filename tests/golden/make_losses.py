#!/usr/bin/env python3
"""Makes losses.txt: PyTorch's losses in double precision, before their mean.

    python3 tests/golden/make_losses.py        # needs torch and torchvision; writes into this folder

For each case the inputs, the losses, and the gradients of 0.75 times the sum of the losses (0.75 is the bench's
loss_scale); the file is as make_models.py describes it. Attributes are repeated in
tests/conformance/test_golden_losses.c. "logits" and "label" are of sequences; "share" is a label too, of probabilities;
"linear" has the product inside; the mean losses have y and target [N,...], or the label's one-hot form.
"""
import pathlib

import torch
import torch.nn.functional as F
from torchvision.ops import sigmoid_focal_loss

from make_models import write

SCALE = 0.75
IGNORED = 2


def cross_entropy(out, name, logits, label, **options):
    logits = logits.clone().requires_grad_()
    loss = F.cross_entropy(logits.transpose(1, 2), label, reduction="none", **options)
    (SCALE * loss.sum()).backward()
    write(out, f"{name}.loss", loss)
    write(out, f"{name}.gradient.logits", logits.grad)


def linear(out, name, x, product, label, **options):
    x, product = x.clone().requires_grad_(), product.clone().requires_grad_()
    loss = F.cross_entropy((x @ product.T).transpose(1, 2), label, reduction="none", **options)
    (SCALE * loss.sum()).backward()
    write(out, f"{name}.loss", loss)
    write(out, f"{name}.gradient.x", x.grad)
    write(out, f"{name}.gradient.product", product.grad)


def mean(out, name, fn, y, target, into="y"):
    y = y.clone().requires_grad_()
    loss = fn(y, target).flatten(1).mean(1)
    (SCALE * loss.sum()).backward()
    write(out, f"{name}.loss", loss)
    write(out, f"{name}.gradient.{into}", y.grad)


def focal(out, name, gamma, logits, label, weight=None):
    """Computes the formula of Lin et al. (2017) as published, on softmax."""
    def losses(x, answer):
        p = torch.softmax(x, 1)[torch.arange(len(answer)), answer]
        return -(1 if weight is None else weight[answer]) * (1 - p) ** gamma * torch.log(p)

    logits = logits.clone().requires_grad_()
    loss = losses(logits, label)
    (SCALE * loss.sum()).backward()
    write(out, f"{name}.loss", loss)
    write(out, f"{name}.gradient.scores", logits.grad)


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(23)
    with open(pathlib.Path(__file__).resolve().parent / "losses.txt", "w") as out:
        logits, label = 3 * torch.randn(3, 4, 5), torch.randint(5, (3, 4))
        label[0, 1] = label[2, 3] = IGNORED
        weight = torch.tensor([0.5, 2.0, 0.25, 1.0, 3.0])
        write(out, "logits", logits)
        write(out, "label", label)
        write(out, "weight", weight)
        cross_entropy(out, "plain", logits, label)
        cross_entropy(out, "ignore", logits, label, ignore_index=IGNORED)
        cross_entropy(out, "smoothing", logits, label, label_smoothing=0.2)
        cross_entropy(out, "weights", logits, label, weight=weight)
        cross_entropy(out, "all", logits, label, ignore_index=IGNORED, label_smoothing=0.2, weight=weight)

        x, product = torch.randn(3, 4, 6), torch.randn(5, 6)
        write(out, "x", x)
        write(out, "product", product)
        linear(out, "linear", x, product, label)
        linear(out, "linear_all", x, product, label, ignore_index=IGNORED, label_smoothing=0.2)

        functions = {
            "mse": lambda y, t: F.mse_loss(y, t, reduction="none"),
            "mae": lambda y, t: F.l1_loss(y, t, reduction="none"),
            "huber": lambda y, t: F.huber_loss(y, t, reduction="none", delta=0.7),
            "bce": lambda y, t: F.binary_cross_entropy_with_logits(y, t, reduction="none"),
        }
        y, target = 3 * torch.randn(3, 2, 4), torch.rand(3, 2, 4)
        write(out, "y", y)
        write(out, "target", target)
        scores, answer = 3 * torch.randn(4, 5), torch.tensor([3, 0, 4, 3])
        write(out, "scores", scores)
        write(out, "answer", answer)
        for name, fn in functions.items():
            mean(out, name, fn, y, target)
            mean(out, f"{name}_label", fn, scores, F.one_hot(answer, 5).double(), "scores")

        share = torch.rand(3, 4, 5)
        share /= share.sum(-1, keepdim=True)
        write(out, "share", share)
        cross_entropy(out, "shares", logits, share.transpose(1, 2))
        cross_entropy(out, "shares_all", logits, share.transpose(1, 2), label_smoothing=0.2, weight=weight)

        for gamma in (0, 0.5, 2, 5):
            focal(out, f"focal_{gamma}_label", gamma, scores, answer)
            focal(out, f"focal_{gamma}_weights_label", gamma, scores, answer, weight)
            for alpha in (0.25, -1):
                mean(out, f"sigmoid_focal_{gamma}_{alpha}_label",
                     lambda y, t: sigmoid_focal_loss(y, t, alpha=alpha, gamma=gamma), scores,
                     F.one_hot(answer, 5).double(), "scores")

        teacher = 3 * torch.randn(4, 5)
        write(out, "teacher", teacher)
        for temperature in (1, 4, 0.5):
            def divergence(y, t, by=temperature):
                both = torch.log_softmax(y / by, 1), torch.log_softmax(t / by, 1)
                return 5 * by ** 2 * F.kl_div(*both, reduction="none", log_target=True)  # its mean() is then a sum
            mean(out, f"kl_{temperature}", divergence, scores, teacher, "scores")


if __name__ == "__main__":
    main()
