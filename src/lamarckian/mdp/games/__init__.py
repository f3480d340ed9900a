"""Games that come with the platform."""

from lamarckian.mdp.games.cartpole import CartPole
from lamarckian.mdp.games.pendulum import Pendulum
from lamarckian.mdp.games.pong import Pong

__all__ = ["CartPole", "Pendulum", "Pong"]
