"""``python -m lamarckian``: the command line."""

from lamarckian.cli.main import entry

if __name__ == "__main__":  # spawned workers import the main module again
    entry()
