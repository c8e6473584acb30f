"""The error hierarchy of the harness; each error has a message, a hint, and an exit code.

    HarnessError                        something else than vLLM prevents the work: exit code 3
        AssetError
            SourceUnavailableError, ChecksumError
        AnswersNotJudged, BookError, EndpointError, InProcessError, InstallError, McpError, NamesError
        NoFreePort, NoVllmError, OtherUserAnswers, ScriptError
        BrokenEnvironmentError, NotReproduced                    findings: exit code 1
        ForkServerFailed
            TemplateEnded
        ServerError
            ServerDied, StopFailed
            StartupError                a class for each cause
                CrashedProcess, DamagedConfiguration, DamagedInstallation, DamagedWeights, GatedModel
                KvCacheTooSmall, MissingOperator, MissingPackage, ModelNotFound, NameNotServed
                RefusedConfiguration, UnknownFlag, UnknownParser, UnsupportedArchitecture, WrongTorchBuild
                MachineError
                    CpuMemoryTooSmall, GpuOutOfMemory, HubUnreachable, IllegalInstruction, KilledByOom
                    KilledProcess, LeaseTimeout, NoCudaDevice, NoSpaceLeft, NotEnoughHardware, PortTaken
                    StartupTimeout, TooManyFiles, WaitCannotEnd
        InfrastructureError             a machine that cannot go on: exit code 3
        UsageError                      invalid input: exit code 2
            BookFileError, CassetteError, DefectsError, DialectError, MissingEnvironmentError, MissingExtra
            ModelsFileError, ProtocolInputError, ScenarioError, StandInError, UntrustedFolder, YamlFileError

`vllm_harness.extras` lists the errors of the extras. A failed check in a test raises an AssertionError
instead, such as `ProtocolViolation`. Code that runs without the harness has its own errors.
"""

from __future__ import annotations


class HarnessError(Exception):
    """An error that the harness can explain.

    Args:
        message: what happened, in a sentence or two.
        hint: what to try, in the imperative; empty if that is unknown.

    Attributes:
        exit_code: the exit code of a command that fails with this error.
        of_machine: whether the cause is this machine, so that another machine may succeed.
    """

    __module__ = "vllm_harness"  # the name that tracebacks show
    exit_code = 3
    of_machine = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(HarnessError):
    """Invalid input from the user: an unknown name, a malformed file, an invalid flag. Exit code 2."""

    __module__ = "vllm_harness"
    exit_code = 2


class InfrastructureError(HarnessError):
    """The machine is the cause, such as a full disk. Exit code 3."""

    __module__ = "vllm_harness"
    of_machine = True
