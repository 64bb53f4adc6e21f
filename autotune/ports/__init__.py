"""Protocols between the tuner and its surroundings. Each has a suite of behavioural tests in tests/contracts."""

from autotune.ports.frameworks import Companion, Framework, Place, ServerLaunch
from autotune.ports.people import Clock, Observer, Requests, StopToken
from autotune.ports.proposers import FrugalProposer, PlacedProposer, Proposer
from autotune.ports.runners import Assignment, Crew, Rendezvous, RunReport, TrialRunner, Watcher
from autotune.ports.store import Store, StudyLock
from trainer.frameworks.common.failures import Diagnosis
