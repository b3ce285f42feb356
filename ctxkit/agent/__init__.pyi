# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .acp_reply_builder import AcpReplyBuilder as AcpReplyBuilder
from .agent import Agent as Agent
from .artifact_store import ArtifactStore as ArtifactStore
from .change_log_intent_log_evidence_graph import ChangeLog as ChangeLog
from .change_log_intent_log_evidence_graph import IntentLog as IntentLog
from .change_log_intent_log_evidence_graph import build_change_log as build_change_log
from .change_log_intent_log_evidence_graph import read_record as read_record
from .ctxkit_folder_and_session_trust import Workspace as Workspace
from .document_store import ContextStore as ContextStore
from .document_store import import_files as import_files
from .live_context_and_transcript import LiveContext as LiveContext
from .live_session import LiveSession as LiveSession
from .mcp_tools import McpServer as McpServer
from .memory import MemoryDigestLimits as MemoryDigestLimits
from .memory import MemoryEntry as MemoryEntry
from .memory import MemoryStore as MemoryStore
from .memory import WebhookMemoryProvider as WebhookMemoryProvider
from .memory.providers import LocalMemoryProvider as LocalMemoryProvider
from .memory.session_memory import SessionMemory as SessionMemory
from .models.gguf import LocalModel as LocalModel
from .models.litellm_provider import ProviderModel as ProviderModel
from .models.litellm_provider import anthropic_clearing as anthropic_clearing
from .models.litellm_provider import load_litellm as load_litellm
from .models.litellm_provider import openai_compaction as openai_compaction
from .models.model import Delta as Delta
from .models.model import Request as Request
from .models.model import ignore_delta as ignore_delta
from .models.model_factory import make_model as make_model
from .models.provider_streams_and_retries import RetryPolicy as RetryPolicy
from .models.scripted_and_lookup_models import GIVE_UP_TEXT as GIVE_UP_TEXT
from .models.scripted_and_lookup_models import SCRIPT_OVER as SCRIPT_OVER
from .models.scripted_and_lookup_models import ScriptedModel as ScriptedModel
from .models.scripted_and_lookup_models import get_script as get_script
from .recorders.api_call_recorder import Recording as Recording
from .recorders.api_call_recorder import recorder as recorder
from .session_log import SessionLog as SessionLog
from .session_log import list_checkpoints as list_checkpoints
from .tools.confined_root import RootFolder as RootFolder
from .tools.execution_and_results import OutputLimits as OutputLimits
from .tools.execution_and_results import image_from_bytes as image_from_bytes
from .tools.execution_and_results import run_tool as run_tool
from .tools.file_tools_and_pdf_office_text import make_file_tools as make_file_tools
from .tools.python_shell_and_summary_tools import make_python_tool as make_python_tool
from .tools.python_shell_and_summary_tools import make_shell_tool as make_shell_tool
from .tools.tool import tool as tool
from .turn_limits_and_token_budgets import Limits as Limits
from .turn_limits_and_token_budgets import SpentInTurn as SpentInTurn
from .turn_state_and_events import LiveEvent as LiveEvent
from .turn_state_and_events import Outcome as Outcome
from .turn_state_and_events import TurnState as TurnState

# isort: split
# For other packages and for tests, not in `__all__`:
from .acp_agent import find_agent_log as find_agent_log
from .acp_reply_builder import parse_acp_usage as parse_acp_usage
from .acp_reply_builder import with_stored_call_id as with_stored_call_id
from .change_log_intent_log_evidence_graph import EvidenceGraph as EvidenceGraph
from .change_log_intent_log_evidence_graph import build_evidence_graph as build_evidence_graph
from .change_log_intent_log_evidence_graph import (
    build_tool_call_intent_log as build_tool_call_intent_log,
)
from .change_log_intent_log_evidence_graph import (
    check_claims_against_changes as check_claims_against_changes,
)
from .change_log_intent_log_evidence_graph import encode_record as encode_record
from .change_log_intent_log_evidence_graph import find_claims as find_claims
from .child_processes import ProcessTree as ProcessTree
from .ctxkit_folder_and_session_trust import check_session_name as check_session_name
from .document_store import format_index_block as format_index_block
from .event_loop_threads import BackgroundTask as BackgroundTask
from .event_loop_threads import EventLoopClientBase as EventLoopClientBase
from .event_loop_threads import run_coroutine as run_coroutine
from .event_snapshot_and_report_files import ContextReportStore as ContextReportStore
from .live_context_and_transcript import ArtifactOffloader as ArtifactOffloader
from .live_context_and_transcript import LiveTranscript as LiveTranscript
from .memory.entry_store import (
    get_ctxkit_and_fuseraft_memory_folders as get_ctxkit_and_fuseraft_memory_folders,
)
from .memory.providers import make_memory_provider as make_memory_provider
from .memory.session_memory import MemoryFlusher as MemoryFlusher
from .model_calls import PromptCharacterCounter as PromptCharacterCounter
from .model_calls import ReplyEventEmitter as ReplyEventEmitter
from .model_calls import count_payload_bytes as count_payload_bytes
from .model_calls import digest_tools as digest_tools
from .model_calls import find_last_tools_digest as find_last_tools_digest
from .model_summaries_and_backoff import ModelSummariser as ModelSummariser
from .models.scripted_and_lookup_models import make_reply as make_reply
from .session_log import MAX_CHECKPOINTS as MAX_CHECKPOINTS
from .session_log import get_checkpoint as get_checkpoint
from .session_settings_seal_and_changes import (
    make_unsealed_session_settings as make_unsealed_session_settings,
)
from .span_export import OtlpCollectorSettings as OtlpCollectorSettings
from .span_export import SpanExporter as SpanExporter
from .span_export import encode_protobuf as encode_protobuf
from .span_export import post_spans as post_spans
from .system_prompt import PromptSection as PromptSection
from .system_prompt import make_section_message as make_section_message
from .tools.execution_and_results import MAX_IMAGE_BYTES as MAX_IMAGE_BYTES
from .tools.execution_and_results import image_from_value as image_from_value
from .tools.python_shell_and_summary_tools import TOOL_NAMES as TOOL_NAMES
from .tools.python_shell_and_summary_tools import (
    make_inert_brief_and_summary_tools as make_inert_brief_and_summary_tools,
)
from .tools.python_shell_and_summary_tools import make_tools as make_tools
from .tools.tool import Tool as Tool
from .turn_limits_and_token_budgets import TokenBudgetMonitor as TokenBudgetMonitor
