"""The names that the modules inside a server and the package share.

Imports nothing. The modules in this folder import it as `vllm_harness_names`, since the folder is on the
server's `sys.path`; the package imports it as `vllm_harness._scripted.in_server.vllm_harness_names`.
"""

# HTTP
BOOK_HEADER = "x-vllm-harness-book"  # the name of the book that answers a request
DEFAULT_BOOK = "default"  # answers requests without that header
CONTROL_PATH = "/vllm-harness/"  # paths below it are only for the user who runs the server
BOOKS_PATH = CONTROL_PATH + "books/"  # followed by the name of a book
RESET_PATH = CONTROL_PATH + "reset/"  # followed by the name of a book
DELIVERY_HEADER = "x-vllm-harness-delivery"  # the chunks of a streamed answer, such as `tokens_1`
EXCHANGE_HEADER = "x-vllm-harness-exchange"  # the client's name for a request whose tokens are kept
OWN_HEADER = "x-vllm-harness-own"  # marks requests that the harness itself sends
EXCHANGES_PATH = CONTROL_PATH + "exchanges"  # POST {"names": [...]} returns the tokens of these requests
LOG_PATH = CONTROL_PATH + "log/"  # followed by the number of the last known request
STEPS_HEADER = "x-vllm-harness-steps"  # the client's name for a request whose CPU time is measured
STEPS_PATH = CONTROL_PATH + "steps/"  # followed by that name; returns the CPU time, only once
RECORDING_PATH = "/vllm-harness/recording"

# codes of the errors that a client gets
NO_SCRIPT = "no_script"
SCRIPT_REFUSED = "script_refused"
NO_DELIVERY = "no_delivery"

# variables in the environment of a server
SCRIPT_DIR = "VH_SCRIPT_DIR"  # the folder for the progress of the server's scripts
SERVER_ID = "VH_SERVER_ID"  # the server's id; not set in a forked server

# classes that a server's command line names
LOGITS_PROCESSOR = "vllm_harness_logits:ScriptedLogits"
SCRIPT_MIDDLEWARE = "vllm_harness_middleware.ScriptMiddleware"
RECORD_MIDDLEWARE = "vllm_harness_recorder.RecordMiddleware"
