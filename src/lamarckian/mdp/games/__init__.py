"""Games that come with the platform."""

from lamarckian.mdp.games.cartpole import CartPole
from lamarckian.mdp.games.connect_four import ConnectFour
from lamarckian.mdp.games.duel import Duel
from lamarckian.mdp.games.pendulum import Pendulum
from lamarckian.mdp.games.pong import Pong
from lamarckian.mdp.games.rock_paper_scissors import RockPaperScissors
from lamarckian.mdp.games.skirmish import Skirmish

__all__ = ["CartPole", "ConnectFour", "Duel", "Pendulum", "Pong", "RockPaperScissors", "Skirmish"]
