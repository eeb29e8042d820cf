"""A process that makes the calls of a story, and says after each one how many have answers.

python -m tests.storyteller FILE SEED DONE
"""

from __future__ import annotations

import sys

from nearcast import Broker
from tests.history import Client, Story, Witness

#: How many calls a story has, beside the first.
LENGTH = 400


def main(file: str, seed: int, done: int) -> None:
    """Go on after the first `done` calls."""
    client = Client(Story(seed, LENGTH), Witness(naive=False))
    client.step = done
    client.answered = lambda: setattr(client, "step", client.step + 1)  # type: ignore[method-assign]
    with Broker.open(file, "planar") as broker:
        while not client.over:
            client.make(broker)
            print(client.step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
