# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .agent import Agent as Agent
from .recorders.recording import recorder as recorder
from .turn import Limits as Limits
from .turn import LiveEvent as LiveEvent
from .turn import Outcome as Outcome
from .turn import SpentInTurn as SpentInTurn
