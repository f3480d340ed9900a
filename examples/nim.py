"""The game of the README: asynchronous by nature, written without any asyncio."""

import numpy as np

import lamarckian as lm

SEAT = lm.Role(inputs={"board": lm.Input((2,))}, actions={"take": lm.Discrete(3)})


class Nim(lm.TickGame):
    """Take one to three of 21 matches in turn; who takes the last one wins."""

    roles = {"first": SEAT, "second": SEAT}

    def begin(self, rng, roles):
        self.left, self.turn = 21, 0
        return [("first", "first"), ("second", "second")]

    def deciders(self):
        return ["first", "second"][self.turn % 2 : self.turn % 2 + 1]

    def view(self, player):
        return lm.Observation({"board": np.array([self.left, self.left % 4], np.float32)})

    def tick(self, actions):
        for player, action in actions.items():
            self.left -= min(self.left, int(action["take"]) + 1)
            if self.left == 0:
                other = "second" if player == "first" else "first"
                self.reward(player, 1.0)
                self.reward(other, -1.0)
                self.finish(player, result=1)
                self.finish(other, result=-1)
        self.turn += 1
