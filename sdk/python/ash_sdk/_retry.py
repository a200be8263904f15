"""When to try again, and how long to wait before."""

from __future__ import annotations

from dataclasses import dataclass

# A server that asks for more is asked again all the same.
MAX_RETRY_AFTER = 60.0


@dataclass(frozen=True)
class Retry:
    """How patient a client is. All times are in seconds.

    `attempts` bounds how often a request is sent. `reconnects` bounds how often in a row a stream is taken up again
    without anything new coming; whatever comes starts the count anew. Between two attempts there is a random pause of
    up to `first_pause`, doubled each time, and of `longest_pause` at most. A stream is given up as dead after
    `silence`: the server sends something at least every 15 seconds.
    """

    attempts: int = 4
    reconnects: int = 10
    first_pause: float = 0.25
    longest_pause: float = 8.0
    silence: float = 45.0

    def pause(self, failures: int, chance: float, wanted: float | None = None) -> float:
        """How long to wait after so many failures in a row. `chance` is random, from 0 to 1.

        The whole pause is random: after an outage everybody comes back, and not at once.
        """
        longest: float = min(self.longest_pause, self.first_pause * 2.0 ** min(failures - 1, 30))
        return max(longest * chance, min(wanted or 0.0, MAX_RETRY_AFTER))


NO_RETRY = Retry(attempts=1, reconnects=0)
