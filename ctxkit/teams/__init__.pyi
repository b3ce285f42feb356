# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .fuseraft_config import parse_plan as parse_plan
from .scripted_teams import DEMO_TASK as DEMO_TASK
from .scripted_teams import make_scripted_agent as make_scripted_agent
from .team_factory import team as team

# isort: split
# For other packages and for tests, not in `__all__`:
from .team_definition import ContextSource as ContextSource
from .team_definition import JsonCondition as JsonCondition
from .team_definition import WritableFiles as WritableFiles
from .team_definition import find_json_object as find_json_object
