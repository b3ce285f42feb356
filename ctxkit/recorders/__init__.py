"""Any agent in this kernel recorded into a session: through LiteLLM's callbacks and the HTTP
clients of SDKs.
"""

from ctxkit.faces import listed
from ctxkit.recorders.callbacks import record, recorder
from ctxkit.recorders.recording import Recording

__all__ = ["Recording", "record", "recorder"]
__dir__ = listed(__all__)
