"""Any agent in this kernel, recorded: by LiteLLM's callbacks and SDKs' HTTP clients."""

from ctxkit.faces import listed
from ctxkit.recorders.callbacks import record, recorder
from ctxkit.recorders.recording import Recording

__all__ = ["Recording", "record", "recorder"]
__dir__ = listed(__all__)
