#!/usr/bin/env python3
"""Makes mlp.txt, cnn.txt and vit.txt: PyTorch's results, in double precision, for small forms of these models.

    python3 tests/golden/make_models.py        # needs torch; writes into this folder

Each file is a list of tensors: a line "name rank dim...", then the values, as many digits as a double needs. For one
batch and the initial parameters: logits, the loss of each sample, the gradient of the mean loss; then, from the same
start and on the same batch, 20 steps of AdamW and of SGD with momentum: the loss before each, the parameters after the
last. There is no dropout. The hyperparameters are repeated in tests/conformance/test_golden.c.
"""
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 20


class Mlp(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        widths = [features, *hidden, classes]
        for i, (a, b) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"fc{i}", nn.Linear(a, b))
        self.layers = len(widths) - 1

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.layers):
            x = F.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.layers}")(x)


class Cnn(nn.Module):
    """pytorch/examples mnist/main.py, with `width` in place of 32."""

    def __init__(self, shape, width, classes):
        super().__init__()
        c, h, w = shape
        self.conv1 = nn.Conv2d(c, width, 3)
        self.conv2 = nn.Conv2d(width, 2 * width, 3)
        self.fc1 = nn.Linear(2 * width * ((h - 4) // 2) * ((w - 4) // 2), 4 * width)
        self.fc2 = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width))


class Block(nn.Module):
    def __init__(self, width, heads, ratio):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width, eps=1e-6), nn.Module()
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(x))))


class Vit(nn.Module):
    """timm's VisionTransformer, with its names."""

    def __init__(self, shape, patch, depth, width, heads, ratio, classes):
        super().__init__()
        c, h, w = shape
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + h // patch * (w // patch), width))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(c, width, patch, patch)
        self.blocks = nn.ModuleList(Block(width, heads, ratio) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def write(out, name, tensor, digits=17):
    tensor = tensor.detach()
    out.write(f"{name} {tensor.dim()} {' '.join(str(d) for d in tensor.shape)}\n")
    values = [repr(v) if digits == 17 else f"{v:.{digits}g}" for v in tensor.double().flatten().tolist()]
    for i in range(0, len(values), 6):
        out.write(" ".join(values[i : i + 6]) + "\n")


def values_of(model):
    """Returns parameters and moving averages, without the number of batches that a norm has seen, which is an
    integer."""
    return {key: value for key, value in model.state_dict().items() if value.is_floating_point()}


def train(out, name, model, start, optimizer, x, label, digits):
    model.load_state_dict(start, strict=False)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        losses.append(loss.detach())
        loss.backward()
        optimizer.step()
    write(out, f"{name}.loss", torch.stack(losses), digits)
    for key, value in values_of(model).items():
        write(out, f"{name}.{key}", value, digits)


def batch_of(shape, classes, batch):
    return torch.randn(batch, *shape), torch.randint(classes, (batch,))


def make(path, model, x, label, digits=17):
    """Writes a fixture. Logits and losses are those of evaluation; the rest belongs to training."""
    start = {key: value.clone() for key, value in values_of(model).items()}
    with open(path, "w") as out:
        write(out, "input", x)
        write(out, "label", label)
        for key, value in start.items():
            write(out, f"parameter.{key}", value)
        logits = model.eval()(x)
        write(out, "logits", logits)
        write(out, "loss", F.cross_entropy(logits, label, reduction="none"))
        F.cross_entropy(model.train()(x), label).backward()
        for key, value in model.named_parameters():
            write(out, f"gradient.{key}", value.grad, digits)
        adamw = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
        train(out, "adamw", model, start, adamw, x, label, digits)
        sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
        train(out, "sgd", model, start, sgd, x, label, digits)


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(20)
    make(folder / "mlp.txt", Mlp(12, [10, 7], 5), *batch_of((1, 4, 3), 5, 6))
    make(folder / "cnn.txt", Cnn((2, 11, 9), 3, 4), *batch_of((2, 11, 9), 4, 6))
    make(folder / "vit.txt", Vit((2, 4, 6), 2, 2, 6, 2, 2, 4), *batch_of((2, 4, 6), 4, 6))


if __name__ == "__main__":
    main()
