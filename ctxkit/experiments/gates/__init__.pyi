# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .compactor_command import command as command
from .compactor_gate import gate_compactor as gate_compactor
from .compactor_gate import measure_fact_survival as measure_fact_survival
from .regression_gate import FIGURES as FIGURES
from .regression_gate import gate as gate
