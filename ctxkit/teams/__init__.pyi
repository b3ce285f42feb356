# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .demo_team import DEMO_TASK as DEMO_TASK
from .demo_team import make_scripted_agent as make_scripted_agent
from .fuseraft_config import parse_plan as parse_plan
from .team_building import team as team
