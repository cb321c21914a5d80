#!/usr/bin/env python3
"""Makes resnet18_cifar.txt, resnet18_imagenet.txt, resnet50.txt and clip_vit.txt: PyTorch's results, in double
precision, for small forms of these models.

    python3 tests/golden/make_backbones.py        # needs torch; writes into this folder

make_models.py describes the files. Inputs, parameters and moving averages at the start are multiples of 1/256: few
digits, and the same numbers in single precision. The other numbers have 13 digits.
"""
import pathlib

import torch
import torch.nn.functional as F
from make_models import batch_of, make
from torch import nn


class ResNetBlock(nn.Module):
    """torchvision's BasicBlock and Bottleneck: `layers` are channels, kernel and stride of each convolution."""

    def __init__(self, channels, layers, stride):
        super().__init__()
        self.layers, before = len(layers), channels
        for i, (after, kernel, step) in enumerate(layers, 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(after))
            before = after
        self.downsample = nn.Identity()
        if stride != 1 or channels != before:
            self.downsample = nn.Sequential(nn.Conv2d(channels, before, 1, stride, bias=False), nn.BatchNorm2d(before))

    def forward(self, x):
        y = x
        for i in range(1, self.layers + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(F.relu(y) if i > 1 else y))
        return F.relu(y + self.downsample(x))


class ResNet(nn.Module):
    def __init__(self, shape, width, blocks, bottleneck, cifar, classes):
        super().__init__()
        stem = (3, 1, 1) if cifar else (7, 2, 3)
        self.conv1, self.bn1 = nn.Conv2d(shape[0], width, *stem, bias=False), nn.BatchNorm2d(width)
        self.pool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        channels = width
        for layer, count in enumerate(blocks):
            inner, made = width << layer, []
            for i in range(count):
                stride = 2 if layer > 0 and i == 0 else 1
                layers = [(inner, 3, stride), (inner, 3, 1)]
                if bottleneck:
                    layers = [(inner, 1, 1), (inner, 3, stride), (4 * inner, 1, 1)]
                made.append(ResNetBlock(channels, layers, stride))
                channels = layers[-1][0]
            setattr(self, f"layer{layer + 1}", nn.Sequential(*made))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class ClipAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (p(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        weights = (q * self.scale @ k.transpose(2, 3)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))


class ClipLayer(nn.Module):
    def __init__(self, width, heads, ratio):
        super().__init__()
        self.self_attn, self.layer_norm1 = ClipAttention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Module()
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)
        self.layer_norm2 = nn.LayerNorm(width)

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        y = self.mlp.fc1(self.layer_norm2(x))
        return x + self.mlp.fc2(y * torch.sigmoid(1.702 * y))


class Clip(nn.Module):
    """Hugging Face's CLIPVisionModelWithProjection, with its names, and a head."""

    def __init__(self, shape, patch, depth, width, heads, ratio, projection, classes):
        super().__init__()
        c, h, w = shape
        self.vision_model = m = nn.Module()
        m.embeddings = nn.Module()
        m.embeddings.class_embedding = nn.Parameter(torch.randn(width))
        m.embeddings.patch_embedding = nn.Conv2d(c, width, patch, patch, bias=False)
        m.embeddings.position_embedding = nn.Embedding(1 + h // patch * (w // patch), width)
        m.pre_layrnorm = nn.LayerNorm(width)
        m.encoder = nn.Module()
        m.encoder.layers = nn.Sequential(*(ClipLayer(width, heads, ratio) for _ in range(depth)))
        m.post_layernorm = nn.LayerNorm(width)
        self.visual_projection = nn.Linear(width, projection, bias=False)
        self.head = nn.Linear(projection, classes)

    def forward(self, x):
        m = self.vision_model
        x = m.embeddings.patch_embedding(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.embeddings.class_embedding.expand(len(x), 1, -1), x], 1)
        x = m.encoder.layers(m.pre_layrnorm(x + m.embeddings.position_embedding.weight))
        return self.head(self.visual_projection(m.post_layernorm(x[:, 0])))


def coarse(x):
    return torch.round(x * 256) / 256


def scatter(model):
    """Makes norms that are not the identity, and numbers with few digits. The biases of batch norm let most values pass
    the following relu. Otherwise a channel might be nearly 0, and the next norm would multiply rounding errors by
    hundreds."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
            if isinstance(module, nn.BatchNorm2d):
                module.bias.add_(0.5)
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 1.5)
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.copy_(coarse(value))
    return model


def main():
    folder = pathlib.Path(__file__).resolve().parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    models = {
        "resnet18_cifar": lambda shape: ResNet(shape, 2, [2, 2, 2, 2], False, True, 5),
        "resnet18_imagenet": lambda shape: ResNet(shape, 1, [2, 2, 2, 2], False, False, 5),
        "resnet50": lambda shape: ResNet(shape, 1, [3, 4, 6, 3], True, True, 5),
        "clip_vit": lambda shape: Clip(shape, 2, 2, 8, 2, 2, 7, 5),
    }
    shapes = {"resnet18_imagenet": (2, 37, 33), "clip_vit": (3, 4, 6)}
    for name, model in models.items():
        torch.manual_seed(8)
        shape = shapes.get(name, (3, 16, 13))
        x, label = batch_of(shape, 5, 8)
        make(folder / f"{name}.txt", scatter(model(shape)), coarse(x), label, digits=13)


if __name__ == "__main__":
    main()
