# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .fuseraft_config import parse_plan as parse_plan
from .scripted_teams import DEMO_TASK as DEMO_TASK
from .scripted_teams import make_scripted_agent as make_scripted_agent
from .team_factory import team as team
