"""The interface between parent and child process: file names, record shapes, and shared enums.

The parent writes ``config.json``; the child appends ``metrics.jsonl``, keeps ``phase`` current and writes
``result.json``. They exchange nothing else, and nothing is read from stdout.

Standard library only and Python 3.10 syntax: the child runs under the user's own interpreter.
"""

from .codec import (
    MAY_BE_NAN,
    RECORD_SHAPES,
    decode,
    dumps,
    encode,
    iter_complete_lines,
    parse_record,
    read_result,
    read_spec,
    write_atomic,
)
from .log_lines import Nearness, Sign, SignMatch, echo, illegal, infra, last_error, read_log, read_signs, signs_of
from .mailbox import CurrentPhase, Letter, Mailbox, PhaseMark, WorkerReply, read_phase
from .shapes import (
    CycleRecord,
    GpuUse,
    NoteRecord,
    Peaks,
    ProcessUse,
    Protocol,
    Record,
    Result,
    RewardSpec,
    StartupRecord,
    TrialSpec,
    WorstCaseRecord,
    inputs_of,
    missing_input,
)
from .sign_table import SIGNS
from .words import (
    CONTRACT_VERSION,
    SERVER_VARIABLE,
    TAG_VARIABLE,
    ContractError,
    CycleKind,
    FailureReason,
    Phase,
    Pool,
    RunPaths,
    StartupPart,
)
