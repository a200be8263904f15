"""Every method of the original's TypeScript client, in the order in which they are tried."""

import agents
import sessions
import account
import elsewhere
from client import METHODS, Call, Client, Differs, NotOffered

__all__ = ["METHODS", "Call", "Client", "Differs", "NotOffered", "account", "agents", "elsewhere", "sessions"]
