# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .compactor_fact_survival import measure_fact_survival as measure_fact_survival
from .compactor_gate_and_subprocess import command as command
from .compactor_gate_and_subprocess import gate_compactor as gate_compactor
from .regression_gate import FIGURES as FIGURES
from .regression_gate import gate as gate
