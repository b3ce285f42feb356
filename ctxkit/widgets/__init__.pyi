# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .widget_factories import break_even as break_even
from .widget_factories import budget as budget
from .widget_factories import explore as explore
from .widget_factories import savings as savings
from .widget_factories import thrash as thrash
from .widget_factories import tune as tune
from .widget_factories import watch as watch
