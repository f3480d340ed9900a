"""Device and memory are settled before the first step."""

from __future__ import annotations

import logging

import pytest
import torch

from lamarckian.errors import ConfigError
from lamarckian.mdp.core import Discrete, Input, Role
from lamarckian.rl.planning import batch_bytes, check_memory, choose_device

VECTOR = {"player": Role(inputs={"x": Input((4,))}, actions={"a": Discrete(2)})}
IMAGE = {
    "player": Role(inputs={"x": Input((4, 84, 84), "uint8", "image")}, actions={"a": Discrete(2)})
}


def test_pitfalls_dst_10_cuda_without_cuda_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device: cuda was asked for, but .*use --device cpu"):
        choose_device("cuda", VECTOR)
    device, why = choose_device("auto", IMAGE)
    assert (device.type, why) == ("cpu", "no CUDA device")


def test_pitfalls_perf_05_small_networks_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", VECTOR)[0].type == "cpu"
    assert choose_device("auto", IMAGE)[0].type == "cuda"
    assert choose_device("cuda", VECTOR)[0].type == "cuda"


def test_pitfalls_mem_03_a_batch_that_cannot_fit_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # 4 * 84 * 84 bytes of image, 8 of the action, 8 of the reward head, 24 of flags and numbers.
    one = 4 * 84 * 84 + 8 + 8 + 24
    assert batch_bytes(IMAGE, 10, 16) == one * 160
    with pytest.raises(ConfigError, match=r"lower num_games or fragment_length"):
        check_memory(60 * 10**9, available=100 * 10**9)
    with caplog.at_level(logging.WARNING, "lamarckian.rl"):
        check_memory(45 * 10**9, available=100 * 10**9)
    assert "may start to swap" in caplog.text
    caplog.clear()
    check_memory(10**9, available=100 * 10**9)
    assert caplog.text == ""
