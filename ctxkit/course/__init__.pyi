# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .contests import ContestTable as ContestTable
from .contests import contest as contest
from .contests import judge_rules as judge_rules
from .contests import mark as mark
from .exercises import check as check
from .exercises import load_exercises as load_exercises
from .exercises import numbers as numbers
from .exercises import report as report
from .exercises import tasks as tasks
from .generator.billing_service_coding_session import make_session as make_session
from .lessons.lesson_04_live_session import ports_in_sight as ports_in_sight
from .sample_replays_and_scores import facts_kept as facts_kept
from .sample_replays_and_scores import items_of as items_of
from .sample_replays_and_scores import prices as prices
from .students import begin as begin

# isort: split
# For other packages and for tests, not in `__all__`:
