"""The errors of the harness: one hierarchy; each error has a message, a hint, and an exit code.

    HarnessError                          exit code 1: a failure, or findings
        EndpointError                     endpoint
        AssetError                        environments.sources
            SourceUnavailableError, ChecksumError
        BrokenEnvironmentError            environments.verify
        InstallError                      environments.installer
        MissingEnvironmentError           environments.store
        NoVllmError                       environments.installed
        InProcessError                    regression.engines.in_process
        BookError, ScriptError            scripted.book
        McpError                          scenarios.mcp_servers
        NamesError                        server.model_check (exit code 2)
        NoFreePort                        server.leases.ports
        OtherUserAnswers                  server.private_socket
        ForkServerFailed                  server.fork_server
            TemplateEnded
        NotReproduced                     cli.repro
        ServerError                       server.errors
            ServerDied, StopFailed
            StartupError                  a class for each cause
                CpuMemoryTooSmall, DamagedWeights, GatedModel, GpuOutOfMemory, HubUnreachable, KilledByOom,
                KvCacheTooSmall, MissingOperator, MissingPackage, ModelNotFound, NameNotServed, NoCudaDevice,
                PortTaken, StartupTimeout, UnknownFlag, UnknownParser, UnsupportedArchitecture,
                WrongTorchBuild
                LeaseTimeout, NotEnoughHardware, WaitCannotEnd      server.leases.lease
        UsageError                        exit code 2: bad input
            ModelsFileError                 configuration.model_entries
            DefectsError                    defects.registry
            MissingExtra                    extensions
            UntrustedFolder               files.folders
            YamlFileError                 files.located_yaml
            ProtocolInputError            protocol.errors
            BookFileError                 scripted.book_file
            CassetteError                 cassettes.reading
            DialectError                  scripted.dialects.dialect
            ScenarioError                 scenarios.reading
            StandInError                  scripted.standin

Those of the extras stand in `vllm_harness.extras`. Failures of a test are AssertionErrors instead, such as
`protocol.watching.ProtocolViolation`. Code that runs without the harness has its own errors, such as
`extras.bundles.install.InstallerError`.
"""

from __future__ import annotations


class HarnessError(Exception):
    """An error that the harness can explain.

    Args:
        message: what happened, in a sentence or two.
        hint: what to try, in the imperative; empty where that is unknown.

    Attributes:
        exit_code: exit code of the command line when this error ends it (1: findings or a failure, 2: usage).
        of_machine: whether the machine is to blame, so that it may not happen on another one.
    """

    __module__ = "vllm_harness"  # as tracebacks show it
    exit_code = 1
    of_machine = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(HarnessError):
    """Bad input from the user: an unknown name, a malformed file, a wrong flag. Exit code 2."""

    __module__ = "vllm_harness"
    exit_code = 2
