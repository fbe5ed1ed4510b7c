"""The machine's GPU, asked for without a context of CUDA, with which a process cannot fork."""

import os

import torch


def has_gpu() -> bool:
    """Return whether PyTorch can use a GPU."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return torch.cuda.is_available()
