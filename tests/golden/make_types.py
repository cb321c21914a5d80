#!/usr/bin/env python3
"""Makes types.safetensors with PyTorch and the format's own library (pip install safetensors torch).

Made once, with torch 1.13.1 and safetensors 0.8.0; the file is checked in, so the tests need neither. It holds numbers
in 16 and 64 bits, each with PyTorch's conversion to fp32, and tensors of types that no model of brim has.
"""
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(1)
values = torch.cat([
    torch.tensor([0.0, -0.0, 1.0, -1.0, 65504.0, -65504.0, 2.0 ** -14, 2.0 ** -24, 3 * 2.0 ** -25, 2.0 ** -25,
                  1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 1 + 2.0 ** -8, 1 + 3 * 2.0 ** -8, 0.1, 1 / 3, 3.14159265358979,
                  6.1e-5, 5.96e-8],
                 dtype=torch.float64),
    torch.randn(109, dtype=torch.float64) * 10 ** (torch.rand(109, dtype=torch.float64) * 8 - 5),
])
tensors = {"fp64": values, "fp32": values.float()}
for name, dtype in {"bf16": torch.bfloat16, "fp16": torch.float16}.items():
    tensors[name] = values.float().to(dtype)
    tensors[f"{name}.in_fp32"] = tensors[name].float()
tensors["num_batches_tracked"] = torch.tensor(7)
tensors["mask"] = torch.ones(3, 3, dtype=torch.bool).tril()
save_file(tensors, pathlib.Path(__file__).with_name("types.safetensors"), metadata={"format": "pt"})
