"""Runs llama.cpp's server from the package xllamacpp. Arguments: MODEL (path), PORT, NAME."""

import signal
import sys

import xllamacpp

path, port, name = sys.argv[1:]
parameters = xllamacpp.CommonParams()
parameters.model.path = path
parameters.model_alias = {name}
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(port)
parameters.n_ctx = 8192
parameters.n_parallel = 2
for cores in (parameters.cpuparams, parameters.cpuparams_batch):
    cores.n_threads = 1  # more threads would busy-wait for each other, which takes forever on a busy machine
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
signal.pause()
