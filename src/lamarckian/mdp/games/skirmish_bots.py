"""Rule players for the skirmish; they read observations and masks alone."""

from __future__ import annotations

import numpy as np

from lamarckian.mdp.core import Array, Arrays

_X, _Y, _DISTANCE, _HEALTH, _IS_ENEMY = range(5)


def rush(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Attack the weakest enemy in reach; else run to the nearest one in sight; else go forward."""
    others = inputs["others"]
    num = len(others)
    rows = np.arange(num)
    enemy = inputs["others_mask"] & (others[:, :, _IS_ENEMY] > 0)
    units = legal["target"].shape[1] - 1
    health = np.where(legal["target"][:, 1:], others[:, -units:, _HEALTH], np.inf)
    attack = legal["order"][:, -1]
    target = np.where(attack, 1 + health.argmin(axis=1), 0)
    nearest = np.where(enemy, others[:, :, _DISTANCE], np.inf).argmin(axis=1)
    way = others[rows, nearest, : _Y + 1]
    way = np.where(np.any(enemy, axis=1, keepdims=True), way, np.array([1.0, 0.0], np.float32))
    dead = ~legal["order"][:, 1]
    return _orders(way, attack, dead, target, legal)


def random(inputs: Arrays, legal: Arrays, rng: np.random.Generator) -> Arrays:
    """Any legal order, at any legal target."""
    num = len(inputs["own"])
    chosen = {
        part: np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1)
        for part, mask in legal.items()
    }
    if legal["order"].shape[1] == 3:
        chosen["heading"] = rng.uniform(-1.0, 1.0, (num, 2)).astype(np.float32)
    return chosen


def _orders(way: Array, attack: Array, dead: Array, target: Array, legal: Arrays) -> Arrays:
    """Turn a direction into actions; ``order`` has three choices where headings are continuous."""
    hybrid = legal["order"].shape[1] == 3
    if hybrid:
        order = np.where(dead, 0, np.where(attack, 2, 1))
        length = np.maximum(np.sqrt((way * way).sum(axis=1, keepdims=True)), 1e-6)
        return {"order": order, "target": target, "heading": (way / length).astype(np.float32)}
    along_x = np.abs(way[:, _X]) >= np.abs(way[:, _Y])
    step = np.where(along_x, np.where(way[:, _X] >= 0, 1, 2), np.where(way[:, _Y] < 0, 3, 4))
    return {"order": np.where(dead, 0, np.where(attack, 5, step)), "target": target}
