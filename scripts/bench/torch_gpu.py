"""The network of torch_cnn.py on a GPU, in one mode and precision, for scripts/gpu_check.py.

Prints a JSON object: samples per second, peak bytes of the allocator. The images lie on the host as bytes; batches go
through pinned memory and are copied while the one before is worked on, and normalised on the GPU, which costs least.
Fused AdamW. fp32 is without TF32, tf32 with it; bf16 and fp16 are autocast, fp16 with a GradScaler. The steps that
compile and warm up are not counted.

    eager           NCHW, as the example is written
    channels_last   NHWC
    compiled        NHWC, torch.compile
    graphs          the same with CUDA graphs (mode="reduce-overhead")
"""

import argparse
import json
import pathlib
import time

import torch
from torch.nn import functional

from torch_cnn import MEAN, STD, Net, read_split

WARM_UP = 40
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


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
            for t in now:  # its memory belongs to the other stream, which may use it again only after this one
                t.record_stream(torch.cuda.current_stream())
            yield now
        torch.cuda.current_stream().wait_stream(copies)


def measure(options, images, labels):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    layout = torch.contiguous_format if options.mode == "eager" else torch.channels_last
    model = Net().cuda().to(memory_format=layout)
    forward = model
    if options.mode in ("compiled", "graphs"):
        forward = torch.compile(model, mode="reduce-overhead" if options.mode == "graphs" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=options.precision == "fp16")  # else it leaves all as it is
    start = None
    for count, (x, y) in enumerate(batches(images, labels, options.batch, options.steps + WARM_UP)):
        if count == WARM_UP:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
        x = ((x.float() * (1 / 255) - MEAN) * (1 / STD)).contiguous(memory_format=layout)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", AUTOCAST.get(options.precision), enabled=options.precision in AUTOCAST):
            loss = functional.cross_entropy(forward(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.cuda.synchronize()
    return {"samples_per_second": options.steps * options.batch / (time.perf_counter() - start),
            "peak_bytes": torch.cuda.max_memory_allocated()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--mode", choices=["eager", "channels_last", "compiled", "graphs"], required=True)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16"], required=True)
    options = parser.parse_args()
    images, labels = read_split(options.data, "train")
    print(json.dumps(measure(options, images, labels)))


if __name__ == "__main__":
    main()
