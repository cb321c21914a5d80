"""The network of torch_cnn.py on a GPU, in every mode and precision, for scripts/gpu_check.py.

Prints one JSON object {"eager fp32": [samples/s, peak bytes of the allocator], ...}. The images lie in pinned memory of
the host as bytes; batches are copied while the one before is worked on and normalised on the GPU, which costs least.
Fused AdamW. fp32 is without TF32, tf32 with it; bf16 is autocast. The steps that compile and warm up are not counted.
"""

import argparse
import json
import time

import torch
from torch.nn import functional

from torch_cnn import MEAN, STD, Net, read_split
import pathlib


def batches(images, labels, batch, steps):
    """Of a random permutation, each copied on a stream of its own one step ahead."""
    copies = torch.cuda.Stream()
    per_epoch = len(labels) // batch
    ahead = None
    for step in range(steps + 1):
        if step % per_epoch == 0:
            order = torch.randperm(len(labels))
        now, ahead = ahead, None
        if step < steps:
            index = order[step % per_epoch * batch:][:batch]
            host = images[index].pin_memory(), labels[index].pin_memory()
            with torch.cuda.stream(copies):
                ahead = [t.to("cuda", non_blocking=True) for t in host]
        if now:
            yield now
        torch.cuda.current_stream().wait_stream(copies)


def rate(options, images, labels, mode, precision):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    torch._dynamo.reset()
    layout = torch.contiguous_format if mode == "eager" else torch.channels_last
    model = Net().cuda().to(memory_format=layout)
    step_model = torch.compile(model, mode="max-autotune-no-cudagraphs" if options.autotune else None) \
        if mode == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.cuda.reset_peak_memory_stats()
    warm_up, count, start = 30, 0, None
    for x, y in batches(images, labels, options.batch, options.steps + warm_up):
        if count == warm_up:
            torch.cuda.synchronize()
            start = time.perf_counter()
        x = ((x.float() * (1 / 255) - MEAN) * (1 / STD)).contiguous(memory_format=layout)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(step_model(x), y)
        loss.backward()
        optimizer.step()
        count += 1
    torch.cuda.synchronize()
    return [options.steps * options.batch / (time.perf_counter() - start), torch.cuda.max_memory_allocated()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--autotune", action="store_true")
    options = parser.parse_args()
    images, labels = read_split(options.data, "train")
    found = {}
    for mode in ("eager", "channels_last", "compiled"):
        for precision in ("fp32", "tf32", "bf16"):
            found[f"{mode} {precision}"] = rate(options, images, labels, mode, precision)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
