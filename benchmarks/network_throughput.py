"""Samples per second of the image network, over memory formats, precisions and micro-batch sizes.

The network is the image Pong one: 84 x 84 x 4 uint8, four K4S2 convolutions and a layer of 256, critic
256, 128, 128, 64 over a shared bottom. Each cell is the best of several repetitions, in samples per
second of wall time and of processor time, for a forward pass (collection) and for forward, backward
and Adam (learning). A second table compares Adam implementations on the vector network, and denormal
flushing.

    python benchmarks/network_throughput.py --output benchmarks/results/network_throughput.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lamarckian.mdp.core import Discrete, Input, Role
from lamarckian.rl.encoders import has_bfloat16_instructions
from lamarckian.rl.network_config import NetworkConfig
from lamarckian.rl.policy import TorchPolicy
from machine import machine_facts

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
IMAGE_ROLE = Role(
    inputs={"image": Input((4, 84, 84), "uint8", "image", "CHW")}, actions={"move": Discrete(6)}
)
VECTOR_ROLE = Role(inputs={"state": Input((10,))}, actions={"move": Discrete(3)})
IMAGE_NETWORK = {"hidden": (), "critic_hidden": (256, 128, 128, 64)}
BATCHES = (64, 128, 256, 512, 1024)


def keep_freed_memory() -> None:
    """Ask glibc to keep freed blocks: activations of a batch are then not faulted in again."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def best_seconds(work: Callable[[], Any], repetitions: int) -> tuple[float, float]:
    """Return the least wall time and the least processor time of one call."""
    work()
    wall = processor = float("inf")
    for _ in range(repetitions):
        begin, used = time.perf_counter(), time.process_time()
        work()
        wall = min(wall, time.perf_counter() - begin)
        processor = min(processor, time.process_time() - used)
    return wall, processor


def policy_for(role: Role, kind: str, network: dict[str, Any]) -> TorchPolicy:
    precision = "bfloat16" if kind == "bfloat16" else "float32"
    policy = TorchPolicy(role, NetworkConfig(**network, precision=precision))
    if kind == "float32 NCHW":
        policy.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        for module in policy.modules():
            if hasattr(module, "memory_format"):
                module.memory_format = torch.contiguous_format
    return policy


def passes(
    policy: TorchPolicy, inputs: dict[str, torch.Tensor], optimiser: torch.optim.Optimizer
) -> tuple[Callable[[], None], Callable[[], None]]:
    def forward() -> None:
        with torch.inference_mode():
            policy.network(inputs, {}, {})

    def learn() -> None:
        optimiser.zero_grad()
        outputs, values, _ = policy.network(inputs, {}, {})
        assert outputs is not None
        assert values is not None
        (outputs.log_softmax(1)[:, 0].mean() + values.square().mean()).backward()
        optimiser.step()

    return forward, learn


def image_table(repetitions: int, threads: int) -> list[dict[str, Any]]:
    torch.set_num_threads(threads)
    kinds = ["float32 NCHW", "float32 channels-last", "bfloat16"]
    if not has_bfloat16_instructions():
        kinds.remove("bfloat16")
    rows = []
    for kind in kinds:
        policy = policy_for(IMAGE_ROLE, kind, IMAGE_NETWORK)
        optimiser = torch.optim.Adam(policy.parameters(), 1e-4, fused=True)
        for batch in BATCHES:
            inputs = {"image": torch.randint(0, 256, (batch, 4, 84, 84), dtype=torch.uint8)}
            forward, learn = passes(policy, inputs, optimiser)
            row = {"kind": kind, "threads": threads, "batch": batch}
            for name, work in (("forward", forward), ("learning", learn)):
                wall, processor = best_seconds(work, repetitions)
                row[f"{name}_per_second"] = round(batch / wall)
                row[f"{name}_per_cpu_second"] = round(batch / processor)
            print(row, flush=True)
            rows.append(row)
    return rows


def conversion_table(repetitions: int) -> dict[str, float]:
    """Milliseconds for 256 images on the way from uint8 storage to the first convolution."""
    torch.set_num_threads(1)
    chw = torch.randint(0, 256, (256, 4, 84, 84), dtype=torch.uint8)
    last = chw.contiguous(memory_format=torch.channels_last)
    works: dict[str, Callable[[], Any]] = {
        "CHW uint8 to channels-last uint8": lambda: chw.contiguous(
            memory_format=torch.channels_last
        ),
        "channels-last uint8 to float32, scaled": lambda: last.float().mul_(1 / 255),
        "channels-last uint8 to bfloat16, scaled": lambda: last.to(torch.bfloat16).mul_(1 / 255),
    }
    return {
        name: round(1e3 * best_seconds(work, repetitions)[1], 2) for name, work in works.items()
    }


def optimiser_table(repetitions: int) -> list[dict[str, Any]]:
    """Vector network, batch 2048: milliseconds of processor time per optimiser step and update."""
    torch.set_num_threads(1)
    rows = []
    for kind, options in (
        ("loop", {"foreach": False}),
        ("foreach", {"foreach": True}),
        ("fused", {"fused": True}),
    ):
        for flush in (False, True):
            torch.set_flush_denormal(flush)
            policy = TorchPolicy(VECTOR_ROLE)
            optimiser = torch.optim.Adam(policy.parameters(), 1e-4, **options)
            _, learn = passes(policy, {"state": torch.randn(2048, 10)}, optimiser)
            learn()
            rows.append(
                {
                    "adam": kind,
                    "flush_denormal": flush,
                    "step_ms": round(1e3 * best_seconds(optimiser.step, 5 * repetitions)[1], 3),
                    "update_ms": round(1e3 * best_seconds(learn, 5 * repetitions)[1], 3),
                }
            )
            print(rows[-1], flush=True)
    torch.set_flush_denormal(False)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--default-allocator", action="store_true", help="leave glibc as it is")
    arguments = parser.parse_args()
    if not arguments.default_allocator:
        keep_freed_memory()
    images = [row for n in arguments.threads for row in image_table(arguments.repetitions, n)]
    best = max(
        (row for row in images if row["threads"] == 1),
        key=lambda row: row["learning_per_cpu_second"],
    )
    result = {
        "machine": machine_facts() | {"bfloat16_instructions": has_bfloat16_instructions()},
        "allocator": "default" if arguments.default_allocator else "freed memory kept",
        "images": images,
        "best": best,
        "conversion_ms": conversion_table(arguments.repetitions),
        "optimisers": optimiser_table(arguments.repetitions),
    }
    text = json.dumps(result, indent=1)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
