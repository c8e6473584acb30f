"""The names that both halves of the scripted lane share: the modules inside a server, and the package.

Imports nothing. The modules of this folder load it by its own name, since the folder is on a server's path;
the package loads it as `vllm_harness._scripted.in_server.vllm_harness_names`.
"""

# HTTP
BOOK_HEADER = "x-vllm-harness-book"  # names the book that a request is answered from
DEFAULT_BOOK = "default"  # answers requests without that header
CONTROL_PATH = "/vllm-harness/"  # what only the user who runs the server may ask for
BOOKS_PATH = CONTROL_PATH + "books/"  # followed by the name of a book
RESET_PATH = CONTROL_PATH + "reset/"  # followed by the name of a book
EXCHANGE_HEADER = "x-vllm-harness-exchange"  # the client's name of a request, whose tokens are kept
OWN_HEADER = "x-vllm-harness-own"  # the harness itself asks, not a test
EXCHANGES_PATH = CONTROL_PATH + "exchanges"  # POST {"names": [...]}: the tokens of these requests
LOG_PATH = CONTROL_PATH + "log/"  # followed by the number of the last request that is known
STEPS_HEADER = "x-vllm-harness-steps"  # the client's name of a request, whose CPU time is noted
STEPS_PATH = CONTROL_PATH + "steps/"  # followed by that name: its CPU time, told once
RECORDING_PATH = "/vllm-harness/recording"

# codes of the errors that a client gets
NO_SCRIPT = "no_script"
SCRIPT_REFUSED = "script_refused"

# variables in the environment of a server
SCRIPT_DIR = "VH_SCRIPT_DIR"  # folder of what becomes of its scripts
SERVER_ID = "VH_SERVER_ID"  # not set where the server was forked

# what the command of a server loads
LOGITS_PROCESSOR = "vllm_harness_logits:ScriptedLogits"
SCRIPT_MIDDLEWARE = "vllm_harness_middleware.ScriptMiddleware"
RECORD_MIDDLEWARE = "vllm_harness_recorder.RecordMiddleware"
